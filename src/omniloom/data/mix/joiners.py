"""What a YAML may call to join samples: a table of known classes, and what else the caller trusts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from omniloom.data.index.trusted_code import TRUST_VARIABLE, is_trusted
from omniloom.data.kinds import SAMPLE_CLASSES
from omniloom.data.mix.tree import JoinerName
from omniloom.errors import ConfigError

KNOWN_PACKAGES = ("omniloom", "megatron.energon")
"""Packages whose names of sample types stand for omniloom's own, wherever in them a YAML looks for them."""


def find_joiner(joiner: Callable[..., Any] | JoinerName, *, trust: bool) -> Callable[..., Any]:
    """The function that makes one sample of several.

    Args:
        joiner: a sample class or function, or its name. Classes join by their ``from_joined``.
        trust: whether code may be imported that is not in the table of known classes. ``OMNILOOM_TRUST=0`` forbids it
            in any case.

    Raises:
        ConfigError: the name is not in the table and may not be imported, or there is nothing of that name.
    """
    found = _named(joiner, trust=trust) if isinstance(joiner, JoinerName) else joiner
    from_joined: Callable[..., Any] | None = getattr(found, "from_joined", None) if isinstance(found, type) else found
    if not callable(from_joined):
        raise ConfigError(f"joiner {found!r}: neither a function nor a class with from_joined")
    return from_joined


def _named(joiner: JoinerName, *, trust: bool) -> Any:
    known: Mapping[str, Any] = SAMPLE_CLASSES
    if joiner.name in known and any(f"{joiner.module}.".startswith(f"{package}.") for package in KNOWN_PACKAGES):
        return known[joiner.name]
    name = f"{joiner.module}.{joiner.name}"
    if not is_trusted(trust):
        why = f"{TRUST_VARIABLE}=0 forbids that" if trust else "that needs trust=True"
        raise ConfigError(
            f"{joiner.place}: the joiner {name} is not one of omniloom's sample types and would have to be imported; "
            f"{why}. Give the function itself from Python: join(..., joiner=function)."
        )
    try:
        return getattr(import_module(joiner.module), joiner.name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{joiner.place}: the joiner {name} cannot be imported: {error}") from error
