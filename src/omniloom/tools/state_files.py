"""Files of saved states: which there are, what is in them, and how they are written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from omniloom.data.loader.state import RankState, read_states, write_state
from omniloom.errors import StateError
from omniloom.tools.energon_state import EnergonState, read_energon_state

_NUMBER = re.compile(r"\d+(?!.*\d)")


def read_any(path: Path) -> RankState | EnergonState:
    """The state in a file: omniloom's, also within Megatron's dict, or Energon's.

    Raises:
        StateError: it is neither.
    """
    if path.suffix == ".json":
        return read_states(path, where=str(path))
    try:
        import torch  # noqa: PLC0415 - only a state that torch saved needs it

        plain = torch.load(path, weights_only=True)
    except Exception as error:
        found = read_energon_state(path)
        if found is None:
            raise StateError(f"{path}: neither a state of omniloom's nor one of Energon's: {error}") from error
        return found
    return read_states(_unwrapped(plain), where=str(path))


def _unwrapped(plain: Any) -> Any:
    """A state, out of the dict that Megatron-LM saves it in."""
    return plain["dataloader_state_dict"] if isinstance(plain, dict) and "dataloader_state_dict" in plain else plain


def expanded(files: tuple[Path, ...]) -> tuple[Path, ...]:
    """Files, and those in folders."""
    found: list[Path] = []
    for path in files:
        inside = [one for one in path.iterdir() if one.suffix in (".json", ".pt", ".pth")] if path.is_dir() else [path]
        found += sorted(inside)
    if not found:
        raise StateError(f"no state in {', '.join(map(str, files))} (*.json, *.pt)")
    return tuple(found)


def name_of_rank(first: Path, rank: int) -> str:
    """The name of a rank's file: that of the first one, with the last number in it changed."""
    number = _NUMBER.search(first.stem)
    if number is None:
        return f"{first.stem}_rank{rank}{first.suffix}"
    digits = str(rank).zfill(len(number[0]))
    return first.stem[: number.start()] + digits + first.stem[number.end() :] + first.suffix


def write(target: Path, plain: dict[str, Any]) -> None:
    """Write a state as JSON, or, under another ending, as torch saves it."""
    if target.suffix == ".json":
        write_state(target, plain)
        return
    import torch  # noqa: PLC0415 - only a state that torch saved needs it

    torch.save(plain, target)
