"""Arithmetic of a shell script, reckoned without a shell: whole numbers, and variables that hold them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence

_DOLLAR = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")
_MOST_POWER = 64


def reckoned(text: str, variables: Mapping[str, Sequence[str]]) -> int | None:
    """The value of what stands between double parentheses; ``None`` where it is not known.

    Args:
        text: sums, differences, products, quotients, remainders and powers of numbers and variables.
        variables: their words by name.
    """
    try:
        return _value(ast.parse(_DOLLAR.sub(r"\1", text).strip(), mode="eval").body, variables)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError):
        return None


def _value(node: ast.expr, variables: Mapping[str, Sequence[str]]) -> int:
    """The value of a part. Raises ValueError or KeyError where it is not known."""
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            return int(" ".join(variables[name]))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, variables)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _value(inner, variables)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _REGULAR:
            return _REGULAR[type(op)](_value(left, variables), _value(right, variables))
    raise ValueError(ast.dump(node))


def _quotient(left: int, right: int) -> int:
    """Towards zero, as the shell has it."""
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


def _power(left: int, right: int) -> int:
    if not 0 <= right <= _MOST_POWER:
        raise ValueError(right)
    return int(left**right)


_REGULAR: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: _quotient,
    ast.Mod: lambda left, right: left - right * _quotient(left, right),
    ast.Pow: _power,
}
