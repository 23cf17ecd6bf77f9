"""Energon's error handlers: called with an error, what failed, and where its data came from."""

from __future__ import annotations

import sys
import traceback
from typing import Any


def log_exception(error: Exception, sample: Any, sources: Any = None) -> None:
    """Write the error, what failed and where it came from to the standard error output."""
    lines = ["-" * 10, *traceback.format_exception(error)]
    lines += [f"source: {source}\n" for source in sources or ()]
    key = sample.get("__key__") if isinstance(sample, dict) else getattr(sample, "__key__", None)
    lines.append(f"sample: {type(sample).__name__} {'' if key is None else key}\n")
    sys.stderr.writelines(lines)


def reraise_exception(error: Exception, _sample: Any, _sources: Any = None) -> None:
    """Raise the error: the run ends at the first one."""
    raise error
