"""What tells one model's weights from another's, whatever their folder is called."""

from __future__ import annotations

import hashlib
from pathlib import Path

_KINDS = (".safetensors", ".distcp", ".gguf", ".onnx", ".bin", ".pt", ".pth", ".model")
_NAMES = (".metadata", "config.json", "omniloom.json", "tokenizer.json", "tokenizer_config.json")
_BLOCK_BYTES = 4096
_BLOCKS = 256


def model_fingerprint(folder: Path) -> str | None:
    """The SHA-256 of a model's files: their names and sizes, and their content.

    Of files over a MiB, 256 blocks of 4 KiB at equal distances are read, the first and the last among them: weights
    that were trained on differ in all of them, and a folder of 140 GB takes no longer than a small one.

    Args:
        folder: of weights, config and tokenizer, or of a checkpoint; or one file of weights.

    Returns:
        64 hexadecimal digits; ``None`` where there is no such folder or file, as for names of a hub.
    """
    files = [folder] if folder.is_file() else _files(folder) if folder.is_dir() else []
    if not files:
        return None
    digest = hashlib.sha256()
    for file in files:
        name = file.name if folder.is_file() else file.relative_to(folder).as_posix()
        digest.update(f"{name}\0{file.stat().st_size}\0".encode())
        _update(digest, file)
    return digest.hexdigest()


def _files(folder: Path) -> list[Path]:
    """Of weights, config and tokenizer: answers and scores that lie in a model's folder are no part of it."""
    found = (file for file in folder.rglob("*") if file.suffix in _KINDS or file.name in _NAMES)
    return sorted(file for file in found if file.is_file())


def _update(digest: hashlib._Hash, file: Path) -> None:
    size = file.stat().st_size
    with file.open("rb") as opened:
        if size <= _BLOCKS * _BLOCK_BYTES:
            digest.update(opened.read())
            return
        for block in range(_BLOCKS):
            opened.seek((size - _BLOCK_BYTES) * block // (_BLOCKS - 1))
            digest.update(opened.read(_BLOCK_BYTES))
