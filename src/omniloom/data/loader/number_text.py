"""Lists of whole numbers as short texts, for states of many lanes by many leaves.

A number takes as many groups of seven bits as it needs (LEB128, after folding the sign in: 0, -1, 1, -2, ...), and the
bytes go into JSON by Python's base 85. A state whose weights change would be nearly twice as long as decimal lists.
"""

from __future__ import annotations

from base64 import b85decode, b85encode
from collections.abc import Sequence

from omniloom.errors import StateError


def text_of_numbers(numbers: Sequence[int]) -> str:
    """Whole numbers of any size as a text."""
    data = bytearray()
    for number in numbers:
        left = 2 * number if number >= 0 else -2 * number - 1
        while left > 127:
            data.append(left & 127 | 128)
            left >>= 7
        data.append(left)
    return b85encode(bytes(data)).decode()


def numbers_of_text(text: str) -> list[int]:
    """The numbers of a text. Raises StateError where it is none."""
    try:
        data = b85decode(text)
    except ValueError as error:
        raise StateError(f"a lane's state holds {text:.40}..., which is no list of numbers: {error}") from None
    numbers, left, shift = [], 0, 0
    for byte in data:
        left |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(left // 2 if left % 2 == 0 else -(left + 1) // 2)
            left = shift = 0
    if shift:
        raise StateError(f"a lane's state holds {text:.40}..., a list of numbers that is cut short")
    return numbers
