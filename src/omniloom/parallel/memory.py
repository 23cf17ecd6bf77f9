"""How much memory a rank needs, before there is one: parameters counted by the tables they are cut by, activations by
running one layer of each kind on the meta device and adding up what it keeps for its gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from omniloom.errors import ConfigError
from omniloom.model.attention import AttendPacked
from omniloom.model.config import DecoderConfig, LlavaConfig, VisionConfig
from omniloom.model.decoder import DecoderLayer
from omniloom.model.documents import Documents
from omniloom.model.llava import Llava
from omniloom.model.loss import DEFAULT_CHUNK_TOKENS
from omniloom.model.rope import rope_table
from omniloom.model.vision import VisionLayer
from omniloom.parallel.config import ParallelConfig
from omniloom.parallel.stages import spans_of_layers
from omniloom.parallel.tensor import axis_of, cut_of

_FLOAT32_BYTES, _HALF_BYTES = 4, 2
_ADAM_STATES = 2
_GATHERED_LAYERS = 2  # the one at work, and the next one, which is fetched meanwhile


@dataclass(frozen=True, kw_only=True)
class RankMemory:
    """Bytes of one rank at their highest, part by part. What a kernel needs for itself is not counted.

    Attributes:
        weights, gradients, optimizer: what the rank holds of them, float32.
        gathered: parameters put together for computation.
        activations: what layers keep for their gradients, of all micro-batches that are on their way.
        loss: one chunk of scores, and the gradient of the head.
    """

    weights: int
    gradients: int
    optimizer: int
    gathered: int
    activations: int
    loss: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.gathered + self.activations + self.loss


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a micro-batch holds.

    Attributes:
        tokens: of all documents, image features and all.
        tiles: images of the tower's size.
        micro_batches: of a step.
    """

    tokens: int
    tiles: int
    micro_batches: int = 1


def rank_memory(model: nn.Module, config: ParallelConfig, load: Load, *, ranks: int, stage: int = 0) -> RankMemory:
    """What a rank needs.

    Args:
        model: a `Llava`, on ``meta`` as a rule, with gradients on for what is trained.
        config: how it is laid over ranks.
        load: the largest micro-batch.
        ranks: of the job.
        stage: of the pipeline; its first has the tower, and keeps the most micro-batches.

    Raises:
        ConfigError: another model, or numbers that do not divide the ranks.
    """
    if not isinstance(model, Llava):
        raise ConfigError(f"parallel: {type(model).__name__} found; a LLaVA expected.")
    if ranks % (config.ranks_of_a_replica * config.replicas):
        raise ConfigError(f"parallel: {config.ranks_of_a_replica * config.replicas} does not divide {ranks} ranks.")
    shards = ranks // config.pipeline // config.tensor // config.replicas
    own = _Own(model, config, stage)
    weights = sum(own.of_matrices(name, parameter) for name, parameter in own.parameters())
    trained = sum(own.of_matrices(name, each) for name, each in own.parameters() if each.requires_grad)
    whole_by_unit = own.by_unit()
    width = _HALF_BYTES if config.precision == "bfloat16" else _FLOAT32_BYTES
    stays = config.pipeline > 1 or not config.reshard
    layers = sorted(value for unit, value in whole_by_unit.items() if unit)
    gathered = sum(layers if stays else layers[-_GATHERED_LAYERS:]) + whole_by_unit.get("", 0)
    return RankMemory(
        weights=_share(weights, shards) * _FLOAT32_BYTES,
        # They are cut over ranks with the last micro-batch of a step; before it, sums are whole.
        gradients=(trained if load.micro_batches > 1 else _share(trained, shards)) * _FLOAT32_BYTES,
        optimizer=_share(trained, shards) * _FLOAT32_BYTES * _ADAM_STATES,
        gathered=gathered * width if shards > 1 or width != _FLOAT32_BYTES else 0,
        activations=own.activations(load) * width // _HALF_BYTES,
        loss=own.loss(load, width),
    )


class _Own:
    """What one stage has of a model."""

    def __init__(self, model: Llava, config: ParallelConfig, stage: int) -> None:
        self._model, self._config, self._stage = model, config, stage
        language: DecoderConfig = model.config.language
        self._language = language
        spans = spans_of_layers(language.num_layers, config)
        self.layers = [layer for span in spans[stage :: config.pipeline] for layer in span]
        self.first, self.last = stage == 0, stage == config.pipeline - 1

    def parameters(self) -> list[tuple[str, nn.Parameter]]:
        """The parameters of this stage under their names."""
        return [(name, each) for name, each in self._model.named_parameters() if self._has(name)]

    def of_matrices(self, name: str, parameter: Tensor) -> int:
        """Numbers of a parameter on a rank of ``tensor``, before it is sharded further."""
        part, _, rest = name.partition(".")
        module, _, last = rest.rpartition(".")
        whole = axis_of(last, cut_of(module) if part == "language_model" else None) is None
        return parameter.numel() if whole else _share(parameter.numel(), self._config.tensor)

    def by_unit(self) -> dict[str, int]:
        """Numbers of what is gathered together: each layer, and all else under an empty name."""
        found: dict[str, int] = {}
        for name, parameter in self.parameters():
            words = name.split(".")
            unit = ".".join(words[: words.index("layers") + 2]) if "layers" in words else ""
            found[unit] = found.get(unit, 0) + self.of_matrices(name, parameter)
        return found

    def activations(self, load: Load) -> int:
        """Bytes in half precision."""
        tokens = _share(load.tokens, self._config.context)
        rows = _share(tokens, self._config.tensor if self._config.sequence else 1)
        every = self._config.recompute.get("language_model", 0)
        stream = rows * self._language.dim * _HALF_BYTES
        learns_below = any(each.requires_grad for _, each in self.parameters()) or not self.first
        of_layer = _kept_by_decoder_layer(self._language, self._config.tensor, tokens) if learns_below else 0
        # The stream before attention and before the MLP: each rank keeps its own rows.
        of_layer -= 2 * (tokens - rows) * self._language.dim * _HALF_BYTES if of_layer else 0
        again = len(self.layers[::every]) if every else 0
        kept = (len(self.layers) - again) * of_layer + again * stream
        kept = int(kept * self._on_their_way(load.micro_batches))
        return kept + (of_layer if again else 0) + (self._of_tower(load) if self.first else 0)

    def loss(self, load: Load, width: int) -> int:
        """Scores in float32 with their gradient, and a float32 gradient of the head where it is trained."""
        if not self.last:
            return 0
        words = _share(self._language.vocab_size, self._config.tensor)
        chunk = min(DEFAULT_CHUNK_TOKENS, load.tokens) * words * (2 * _FLOAT32_BYTES + width)
        head = self._model.language_model.head_weight
        return chunk + (words * self._language.dim * _FLOAT32_BYTES if head.requires_grad else 0)

    def _has(self, name: str) -> bool:
        words = name.split(".")
        if words[0] != "language_model":
            return self.first
        if words[1] == "layers":
            return int(words[2]) in self.layers
        if words[1] == "embed_tokens":
            return self.first or (self.last and self._language.tied_head)
        return self.last

    def _on_their_way(self, micro_batches: int) -> float:
        """Micro-batches whose activations the stage keeps at a time (1F1B; Narayanan et al., section 2.2)."""
        stages, chunks = self._config.pipeline, self._config.pipeline_chunks
        ahead = stages - self._stage
        if chunks > 1:
            ahead = 2 * (stages - self._stage - 1) + (chunks - 1) * stages + 1
        return min(ahead, micro_batches * chunks) / chunks

    def _of_tower(self, load: Load) -> int:
        config, tiles = self._model.config, load.tiles
        if self._config.tower == "dealt":
            tiles = _share(tiles, self._config.tensor * self._config.context)
        trained = any(each.requires_grad for each in self._model.vision_tower.parameters())
        if not trained:
            return 0
        every = self._config.recompute.get("vision_tower", 0)
        numbers = range(config.vision.num_layers)
        again = len(numbers[::every]) if every else 0
        of_layer, stream = _kept_by_vision_layer(config.vision, tiles), tiles * _tile_numbers(config) * _HALF_BYTES
        kept = (len(numbers) - again) * of_layer + again * stream + (of_layer if again else 0)
        return int(kept * self._on_their_way(load.micro_batches))


def _kept_by_decoder_layer(config: DecoderConfig, tensor: int, tokens: int) -> int:
    cut = replace(
        config,
        num_heads=_share(config.num_heads, tensor),
        num_kv_heads=_share(config.num_kv_heads, tensor),
        mlp_dim=_share(config.mlp_dim, tensor),
    )

    def run() -> Any:
        layer = DecoderLayer(cut, 0).to(torch.bfloat16)
        stream = torch.empty(tokens, config.dim, dtype=torch.bfloat16, requires_grad=True)
        attend = AttendPacked(Documents((0, tokens)), stream.device)
        rope = rope_table(config.rope, attend.positions, head_dim=config.head_dim, dtype=stream.dtype)
        return layer, lambda: layer(stream, rope, attend)

    return _kept_bytes(run)


def _kept_by_vision_layer(config: VisionConfig, tiles: int) -> int:
    def run() -> Any:
        layer = VisionLayer(config).to(torch.bfloat16)
        tokens = config.position_rows**2 + config.prefix_tokens
        stream = torch.empty(tiles, tokens, config.dim, dtype=torch.bfloat16, requires_grad=True)
        return layer, lambda: layer(stream)

    return _kept_bytes(run) if tiles else 0


def _kept_bytes(prepare: Callable[[], tuple[nn.Module, Callable[[], Tensor]]]) -> int:
    """Bytes that a forward pass keeps besides its parameters; nothing is computed."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage.nbytes()
        held.append(tensor)  # or another might be given its place
        return tensor

    held: list[Tensor] = []
    with torch.device("meta"):
        layer, run = prepare()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            run()
    parameters = {parameter.untyped_storage()._cdata for parameter in layer.parameters()}
    return sum(size for storage, size in kept.items() if storage not in parameters)


def _tile_numbers(config: LlavaConfig) -> int:
    return (config.vision.position_rows**2 + config.vision.prefix_tokens) * config.vision.dim


def _share(number: int, parts: int) -> int:
    return -(-number // parts)
