"""What a tower that is not trained makes of each tile: kept in a folder, from step to step and from run to run.

A frozen tower gives a tile the same features each time, and on a small machine it is most of a step's work. Here each
tile goes through it once. Features are kept as the projector's maps take them, so reduced ones are small. They are
found by the content of the tile: pixels that augmentation has changed are another tile, which is seen anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, distributed, nn

from omniloom.errors import ConfigError
from omniloom.model.llava import Llava
from omniloom.parallel.sequence import replace_method
from omniloom.storage.files import replace_file
from omniloom.train.hooks import Hook

PART_BYTES = 16_000_000
"""A file of features has so many bytes at least, and a sixteenth of all, so that there are never many files."""
MOST_PART_BYTES = 1_000_000_000
_DIGEST_BYTES = 16
_DIGESTS, _FEATURES = "digests", "features"


class KeptFeatures(Hook):
    """Lets a model look up what it has seen before. What is not yet on disk is written when the run ends.

    A tile goes through the tower by itself, so that its features do not hang on what else is in the batch, and a run
    that goes on is the run that was stopped.

    Args:
        model: whole, in this process, with its weights; its `seen` is replaced.
        folder: where features are kept. Each tower, with the layers and the reduction that are taken, has a folder of
            its own below.

    Attributes:
        looked_at: tiles that went through the tower.

    Raises:
        ConfigError: the tower is trained, ranks share the model, or a file is none of features.
    """

    def __init__(self, model: nn.Module, folder: Path) -> None:
        if not isinstance(model, Llava) or (distributed.is_initialized() and distributed.get_world_size() > 1):
            raise ConfigError("features: found for a model that several ranks share. Leave it out, or use one process.")
        if any(parameter.requires_grad for parameter in model.vision_tower.parameters()):
            raise ConfigError("features: found, but the tower is trained. Set parts.vision_tower.train to false.")
        self.looked_at = 0
        self._folder = folder / fingerprint(model)
        self._see = model.seen
        self._new: dict[bytes, Tensor] = {}
        self._new_bytes = self._kept_bytes = 0
        self._kept: dict[bytes, tuple[Any, int]] = {}
        for file in sorted(self._folder.glob("*.safetensors")):
            self._kept.update(self._in(file))
        replace_method(model, "seen", self.seen)

    def seen(self, tiles: Float[Tensor, "tiles 3 height width"]) -> Float[Tensor, "tiles tokens features"]:
        """See `Llava.seen`."""
        kind = tiles.device.type
        lower = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        names = [_digest(tile, lower) for tile in tiles.cpu()]
        features = [self._of(name, tiles[number : number + 1]) for number, name in enumerate(names)]
        if self._new_bytes >= min(max(PART_BYTES, self._kept_bytes // 16), MOST_PART_BYTES):
            self._write()
        return torch.stack(features).to(tiles.device)

    def close(self) -> None:
        """Write what is not yet on disk."""
        self._write()

    @torch.no_grad()
    def _of(self, name: bytes, tile: Float[Tensor, "1 3 height width"]) -> Float[Tensor, "tokens features"]:
        if name in self._kept:
            rows, row = self._kept[name]
            found: Tensor = rows[row : row + 1][0]
            return found
        if name not in self._new:
            self._new[name] = self._see(tile)[0].cpu()
            self._new_bytes += self._new[name].nbytes
            self.looked_at += 1
        return self._new[name]

    def _write(self) -> None:
        """Put what is new into a file for each shape and dtype, complete or absent."""
        for kind in {(one.shape, one.dtype) for one in self._new.values()}:
            chosen = {name: one for name, one in self._new.items() if (one.shape, one.dtype) == kind}
            names = b"".join(chosen)
            digests = torch.frombuffer(bytearray(names), dtype=torch.uint8).reshape(-1, _DIGEST_BYTES)
            file = self._folder / f"{hashlib.blake2b(names, digest_size=8).hexdigest()}.safetensors"
            replace_file(file, save({_DIGESTS: digests, _FEATURES: torch.stack(list(chosen.values()))}))
            self._kept.update(self._in(file))
        self._new, self._new_bytes = {}, 0

    def _in(self, file: Path) -> Iterator[tuple[bytes, tuple[Any, int]]]:
        """Each tile of a file: its digest, and where its features are; they stay on disk until they are wanted."""
        try:
            opened: Any = safe_open(file, framework="pt")
            digests, rows = opened.get_tensor(_DIGESTS), opened.get_slice(_FEATURES)
        except (SafetensorError, OSError) as error:
            raise ConfigError(
                f"{file}: holds no features ({error}). Remove it: its tiles are then seen again."
            ) from error
        self._kept_bytes += file.stat().st_size
        for row, digest in enumerate(digests):
            yield bytes(digest.tolist()), (rows, row)


def fingerprint(model: Llava) -> str:
    """What features hang on beside the tile: the tower with its weights, its layers that are taken, the reduction."""
    config = model.config
    told = {
        "vision": asdict(config.vision),
        "feature_layers": config.feature_layers,
        "norm_features": config.norm_features,
        "keep_class_token": config.keep_class_token,
        "reduction": [config.projector.reduction, config.projector.factor],
    }
    digest = hashlib.blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=_DIGEST_BYTES)
    for name, value in model.vision_tower.state_dict().items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(_bytes_of(value))
    return digest.hexdigest()


def _digest(tile: Tensor, lower: torch.dtype | None) -> bytes:
    """Of the content of a tile, and of the precision in which it is looked at."""
    digest = hashlib.blake2b(f"{tuple(tile.shape)} {tile.dtype} {lower}".encode(), digest_size=_DIGEST_BYTES)
    digest.update(_bytes_of(tile))
    return digest.digest()


def _bytes_of(value: Tensor) -> memoryview:
    return value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
