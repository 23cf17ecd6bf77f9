"""Texts that end an answer, and text that is shown while it grows.

A stop text may begin in one token and end in another, so it is looked for in the text and not in ids. What is cut
does not hang on how the text was cut into tokens: it is what reading it character by character gives.
"""

from __future__ import annotations

from collections.abc import Sequence

_INCOMPLETE = "\ufffd"  # what a decoder makes of the first bytes of a character


def text_before_stop(text: str, stops: Sequence[str]) -> str | None:
    """What comes before the stop text that is complete first; ``None`` where there is none.

    Of several that end at one character, the longest counts.
    """
    found = [(place + len(stop), place) for stop in stops if (place := text.find(stop)) >= 0]
    return text[: min(found)[1]] if found else None


class GrowingText:
    """Hands out an answer's text as it grows, and never a character that may have to be taken back.

    Held back are white space at both ends, the start of what may become a stop text, and characters whose last bytes
    are missing.

    Args:
        stops: texts that end the answer.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = tuple(stops)
        self._shown = ""

    def more(self, text: str) -> str:
        """What can be shown now.

        Args:
            text: all of the answer so far.
        """
        return self._show(self._safe(text))

    def rest(self, text: str) -> str:
        """What is left to show of the whole answer; all of it on a new line where a decoder changed its mind."""
        if not text.startswith(self._shown):
            return f"\n{text}"
        return self._show(text)

    def _show(self, text: str) -> str:
        if not text.startswith(self._shown):
            return ""
        piece = text[len(self._shown) :]
        self._shown = text
        return piece

    def _safe(self, text: str) -> str:
        before = text_before_stop(text, self._stops)
        if before is not None:
            return before.strip()
        text = text.rstrip(_INCOMPLETE)
        return text[: len(text) - self._begun(text)].strip()

    def _begun(self, text: str) -> int:
        """Characters at the end that begin a stop text."""
        longest = max(map(len, self._stops), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-size:]) for stop in self._stops):
                return size
        return 0
