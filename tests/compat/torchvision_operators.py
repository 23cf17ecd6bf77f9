"""Lets torchvision's transforms be imported beside a torch that its compiled half was not built for.

torchvision's wheel is built for one build of torch. Beside another one (a CPU build, say) its compiled operators are
not loaded, and its import ends at the first description of one. Its transforms are Python and need none of them: it is
enough that the operators are declared.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

_OPERATORS = ("nms", "qnms")
_KEPT: list[Any] = []


def declare() -> None:
    """Declare the operators, once, where torchvision's own did not come."""
    if _KEPT or hasattr(torch.ops.torchvision, _OPERATORS[0]):
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in _OPERATORS:
        with contextlib.suppress(RuntimeError):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _KEPT.append(library)


def importable() -> bool:
    """Whether torchvision can be imported, with the operators declared."""
    try:
        declare()
        import torchvision  # noqa: F401, PLC0415 - needs the declarations
    except (ImportError, RuntimeError, OSError):
        return False
    return True
