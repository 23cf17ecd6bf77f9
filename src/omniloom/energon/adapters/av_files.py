"""Containers of PyAV without threads of their own, as Energon's users open them."""

from __future__ import annotations

from typing import Any

from omniloom.data.media.av_open import load_av


def av_open(file: Any) -> Any:
    """An open container, PyAV's ``InputContainer``, whose decoders have no threads. The caller closes it.

    Args:
        file: a path, or an open binary file that seeks.
    """
    container = load_av().open(file, "r")
    try:
        initialize_av_container(container)
    except BaseException:
        container.close()
        raise
    return container


def initialize_av_container(input_container: Any) -> None:
    """Let the decoders of an open container work without threads: those do not survive a fork."""
    for stream in input_container.streams:
        if stream.codec_context is not None:
            stream.codec_context.thread_type = "NONE"
            stream.codec_context.thread_count = 0
