"""Bytes of tensors that live at once, measured: each operation's outputs are watched until they are gone."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from omniloom.model.build import build
from omniloom.model.config import DecoderConfig, LlavaConfig, ProjectorConfig, VisionConfig
from omniloom.model.documents import Documents
from omniloom.model.lora import LoraConfig, add_lora
from omniloom.parallel.plan import Load, ParallelConfig, RankMemory, gather_each_once, lay_out, parallelize, rank_memory
from omniloom.train.batches import PackedMicroBatch
from omniloom.train.optimizer import OptimizerConfig, make_optimizer, set_learning_rate
from omniloom.train.parts import PartConfig, freeze, lora_of
from omniloom.train.step import train_step

LANGUAGE = DecoderConfig(
    family="llama", vocab_size=2000, dim=192, num_layers=4, num_heads=6, num_kv_heads=2, head_dim=32, mlp_dim=512
)
VISION = VisionConfig(
    family="clip", image_size=56, patch_size=14, dim=128, num_layers=4, num_heads=4, mlp_dim=512, position_rows=4,
    class_tokens=1, class_positions=1, pre_norm=True,
)  # fmt: skip
CONFIG = LlavaConfig(
    language=LANGUAGE,
    vision=VISION,
    projector=ProjectorConfig(input_dim=128, output_dim=192, hidden_dims=(192,)),
    image_token_id=1999,
)
TOKENS, TILES, TILE_TOKENS, DOCUMENTS = 1024, 24, 16, 4
LORA = PartConfig(lora=LoraConfig(rank=8))
FROZEN = PartConfig(train=False)


def batch() -> PackedMicroBatch:
    """So many tokens and tiles, of which all but those of images are learned."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(TILES, 3, 56, 56, generator=draw)
    ids = torch.randint(0, 1990, (TOKENS,), generator=draw)
    places = torch.arange(TILES * TILE_TOKENS)
    ids[places] = CONFIG.image_token_id
    labels = ids.roll(-1).masked_fill(ids == CONFIG.image_token_id, -100)
    documents = Documents.of_lengths([TOKENS // DOCUMENTS] * DOCUMENTS)
    return PackedMicroBatch(ids, labels, documents, images, places, int((labels != -100).sum()), TILES)


def told_and_measured(
    parts: Mapping[str, PartConfig], parallel: ParallelConfig, *, micro_batches: int, ranks: int = 1
) -> tuple[RankMemory, int]:
    """What is told of a step of a small model, and the most that lived at once in it. All ranks call it."""
    model: nn.Module = build(CONFIG, device="meta")
    add_lora(model, lora_of(parts))
    freeze(model, parts)
    load = Load(tokens=TOKENS, tiles=TILES, micro_batches=micro_batches)
    told = rank_memory(model, parallel, load, ranks=ranks)
    torch.manual_seed(0)
    model = parallelize(model, parallel, lay_out(parallel, device="cpu")).to_empty(device="cpu")
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.02)
    gather_each_once(model)
    optimizer = make_optimizer(model, parts, OptimizerConfig())
    set_learning_rate(optimizer, 1e-3)
    batches = [batch() for _ in range(micro_batches)]
    with LiveMemory(of_training(model, optimizer)) as live:
        train_step(model, optimizer, batches, clip_norm=1.0)
    return told, live.peak_bytes


class LiveMemory(TorchDispatchMode):
    """Counts while it is entered; of tensors that were there before, those that it is given.

    Attributes:
        peak_bytes: the most that lived at once.
    """

    def __init__(self, before: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.peak_bytes = 0
        self._storages: weakref.WeakSet[Any] = weakref.WeakSet()
        for tensor in before:
            self._note(tensor)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation and note what it made."""
        made = func(*args, **(kwargs or {}))
        for each in tree_leaves(made):
            if isinstance(each, Tensor):
                self._note(each)
        # Sharding empties storages of what it has let go of, so sizes are asked for anew.
        self.peak_bytes = max(self.peak_bytes, self.now_bytes)
        return made

    @property
    def now_bytes(self) -> int:
        """Bytes that live now."""
        return sum(storage.nbytes() for storage in self._storages)

    def _note(self, tensor: Tensor) -> None:
        self._storages.add(getattr(tensor, "_local_tensor", tensor).untyped_storage())


def of_training(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """What lives before a step: parameters and states."""
    states = [each for state in optimizer.state.values() for each in state.values() if isinstance(each, Tensor)]
    return [*(each.detach() for each in model.parameters()), *states]
