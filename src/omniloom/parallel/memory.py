"""How much memory a rank needs, before there is one: parameters counted by the tables they are cut by, activations as
`omniloom.parallel.kept` finds them, part by part of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from torch import Tensor, nn

from omniloom.errors import ConfigError
from omniloom.model.llava import Llava
from omniloom.model.loss import DEFAULT_CHUNK_TOKENS
from omniloom.parallel.config import ParallelConfig
from omniloom.parallel.kept import HALF_BYTES, Learned, by_decoder_layer, by_projector, by_vision_layer, share
from omniloom.parallel.layers import LAYER_LISTS, layers_of
from omniloom.parallel.stages import spans_of_layers
from omniloom.parallel.tensor import axis_of, cut_of, llava_of, shares_kv_heads

_FLOAT32_BYTES = 4
_ADAM_STATES = 2
_LAYERS_AT_WORK = (
    2  # one, and the next one, which is fetched meanwhile; or the one before, whose gradients are on their way
)
_STREAMS = 5  # outside of layers: words, with features among them, before and after the last norm, and its gradient
_TOWER, _PROJECTOR, _LANGUAGE = "vision_tower", "projector", "language_model"


@dataclass(frozen=True, kw_only=True)
class PartMemory:
    """Bytes of one part of the model on one rank at their highest. What a kernel needs for itself is not counted.

    Attributes:
        weights, gradients, optimizer: what the rank holds of them, float32; also what of gradients is whole meanwhile.
        gathered: parameters put together for computation.
        activations: what layers keep for their gradients, of all micro-batches that are on their way.
        loss: one chunk of scores, and the gradient of the head.
    """

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    gathered: int = 0
    activations: int = 0
    loss: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return sum(getattr(self, kind) for kind in KINDS)


KINDS = tuple(field.name for field in fields(PartMemory))
"""What memory is for, in the order in which it is told."""


@dataclass(frozen=True)
class RankMemory:
    """Bytes of one rank at their highest.

    Attributes:
        parts: by name of a part of the model; those that the rank has nothing of are left out.
    """

    parts: Mapping[str, PartMemory]

    @property
    def total(self) -> int:
        """All of it."""
        return sum(part.total for part in self.parts.values())

    def of(self, kind: str) -> int:
        """That of one of `KINDS`, of all parts."""
        return sum(getattr(part, kind) for part in self.parts.values())

    @property
    def greatest(self) -> tuple[str, str]:
        """The part and the kind that take most."""
        return max(((part, kind) for part in self.parts for kind in KINDS), key=lambda each: self._bytes(*each))

    def _bytes(self, part: str, kind: str) -> int:
        return int(getattr(self.parts[part], kind))


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
    if config.ranks_of_a_replica > 1 or config.token_multiple > 1:
        llava_of(model)  # refuses what only FSDP cuts
    if ranks % (config.ranks_of_a_replica * config.replicas):
        raise ConfigError(f"parallel: {config.ranks_of_a_replica * config.replicas} does not divide {ranks} ranks.")
    own = _Own(model, config, load, stage=stage, ranks=ranks)
    return RankMemory({part: own.of_part(part) for part in own.parts})


@dataclass(frozen=True)
class _Numbers:
    """Numbers of parameters that are gathered together, before they are sharded.

    Attributes:
        every: all of them.
        trained: of these.
    """

    every: int = 0
    trained: int = 0

    def __add__(self, other: _Numbers) -> _Numbers:
        return _Numbers(self.every + other.every, self.trained + other.trained)


class _Own:
    """What one rank of a stage has of a model."""

    def __init__(self, model: Llava, config: ParallelConfig, load: Load, *, stage: int, ranks: int) -> None:
        self._model, self._config, self._load, self._stage = model, config, load, stage
        self._language = model.config.language
        self._width = HALF_BYTES if config.precision == "bfloat16" else _FLOAT32_BYTES
        self._ranks = ranks // config.pipeline
        spans = spans_of_layers(self._language.num_layers, config)
        self._layers = [layer for span in spans[stage :: config.pipeline] for layer in span]
        self._first, self._last = stage == 0, stage == config.pipeline - 1
        self._units = self._numbers_by_unit()
        self.parts = list(dict.fromkeys(part for part, _ in self._units))

    def of_part(self, part: str) -> PartMemory:
        """What a part takes."""
        numbers = sum((each for (name, _), each in self._units.items() if name == part), _Numbers())
        shards = self._shards(part)
        return PartMemory(
            weights=share(numbers.every, shards) * _FLOAT32_BYTES,
            gradients=self._gradients(part, numbers, shards),
            optimizer=share(numbers.trained, shards) * _FLOAT32_BYTES * _ADAM_STATES,
            gathered=self._gathered(part, shards),
            activations=self._activations(part) * self._width // HALF_BYTES,
            loss=self._loss() if part == _LANGUAGE else 0,
        )

    def _shards(self, part: str) -> int:
        """Ranks that a part's parameters are cut over, beside those that its matrices are cut over."""
        shards = self._ranks // self._config.tensor // self._config.replicas
        if part != _TOWER:
            return shards
        return 1 if self._config.tower_weights == "replicated" else shards * self._config.tensor

    def _gradients(self, part: str, numbers: _Numbers, shards: int) -> int:
        """What is added up from micro-batch to micro-batch, and what is whole on its way to other ranks."""
        config = self._config
        trained = sum(each.trained for each in self._units.values())
        each_time = config.sums_each_micro_batch(trained_numbers=trained) and config.pipeline == 1
        stay_whole = self._load.micro_batches > 1 and not each_time
        kept = (numbers.trained if stay_whole else share(numbers.trained, shards)) * _FLOAT32_BYTES
        if self._ranks == config.tensor:
            return kept
        # As they come, in the precision of computation, and as they go, in float32; what is in no layer goes last.
        *layers, others = (each.trained for each in self._at_work(part))
        at_work = max(sum(layers), others)
        return kept + at_work * (self._width + (0 if stay_whole else _FLOAT32_BYTES))

    def _gathered(self, part: str, shards: int) -> int:
        if shards == 1 and self._width == _FLOAT32_BYTES:
            return 0
        stays = self._config.pipeline > 1 or not self._config.reshard
        return sum(each.every for each in self._at_work(part, all_layers=stays)) * self._width

    def _at_work(self, part: str, *, all_layers: bool = False) -> Iterator[_Numbers]:
        """What is whole at the same time: a few layers of the model, or all, and what is in none."""
        layers = [(owner, each) for (owner, unit), each in self._units.items() if unit]
        layers.sort(key=lambda layer: layer[1].every, reverse=True)
        whole = layers if all_layers else layers[:_LAYERS_AT_WORK]
        yield from (each for owner, each in whole if owner == part)
        yield self._units.get((part, ""), _Numbers())

    def _numbers_by_unit(self) -> dict[tuple[str, str], _Numbers]:
        """Of what is gathered together: each layer of a part, and all else of it under an empty name."""
        found: dict[tuple[str, str], _Numbers] = {}
        for name, parameter in self._model.named_parameters():
            if self._has(name):
                words = name.split(".")
                listed = next((place for place, word in enumerate(words) if word in LAYER_LISTS), None)
                unit = words[0], "" if listed is None else ".".join(words[: listed + 2])
                numbers = self._of_matrices(name, parameter)
                more = _Numbers(numbers, numbers if parameter.requires_grad else 0)
                found[unit] = found.get(unit, _Numbers()) + more
        return found

    def _of_matrices(self, name: str, parameter: Tensor) -> int:
        """Numbers of a parameter on a rank of ``tensor``, before it is sharded further."""
        part, _, rest = name.partition(".")
        module, _, last = rest.rpartition(".")
        shared = shares_kv_heads(self._language, self._config.tensor)
        whole = axis_of(last, cut_of(module, kv_heads_shared=shared) if part == _LANGUAGE else None) is None
        return parameter.numel() if whole else share(parameter.numel(), self._config.tensor)

    def _has(self, name: str) -> bool:
        words = name.split(".")
        if words[0] != _LANGUAGE:
            return self._first
        if self._language.transformers_config is not None:
            return True  # one stage has it all
        if words[1] == "layers":
            return int(words[2]) in self._layers
        if words[1] == "embed_tokens":
            return self._first or (self._last and self._language.tied_head)
        return self._last

    def _activations(self, part: str) -> int:
        """Bytes in half precision."""
        if part == _LANGUAGE:
            return self._of_language()
        tiles = self._load.tiles
        if self._config.tower == "dealt":
            tiles = share(tiles, self._config.tensor * self._config.context)
        if part == _PROJECTOR:
            return int(by_projector(self._model, tiles=tiles) * self._on_their_way())
        return self._of_tower(tiles)

    def _of_language(self) -> int:
        config, language = self._config, self._language
        tokens = share(self._load.tokens, config.context)
        rows = share(tokens, config.tensor if config.sequence else 1)
        # The stream before attention and before the MLP: each rank keeps its own rows.
        of_others = 2 * (tokens - rows) * language.dim * HALF_BYTES
        every = list(layers_of(self._model.language_model))
        layers = [every[number] for number in self._layers]
        before = (_TOWER, _PROJECTOR, f"{_LANGUAGE}.embed_tokens")
        flows = not self._first or self._learns(before)
        found = []
        for layer in layers:
            learned = Learned.of(layer, flows=flows)
            kept = by_decoder_layer(language, learned, ranks=config.tensor, tokens=tokens)
            found.append(max(0, kept - of_others))
            flows = learned.keeps
        stream = rows * language.dim * HALF_BYTES
        return self._with_recomputed(found, stream, part=_LANGUAGE) + _STREAMS * stream

    def _of_tower(self, tiles: int) -> int:
        vision, tower = self._model.config.vision, self._model.vision_tower
        last = max(each if each >= 0 else vision.num_layers + 1 + each for each in self._model.config.feature_layers)
        flows = self._learns(tuple(f"{_TOWER}.{name}" for name, _ in tower.named_children() if name != "layers"))
        found = []
        for number in range(last):
            learned = Learned.of(tower.get_submodule(f"layers.{number}"), flows=flows)
            found.append(by_vision_layer(vision, learned, tiles=tiles))
            flows = learned.keeps
        stream = tiles * (vision.position_rows**2 + vision.prefix_tokens) * vision.dim * HALF_BYTES
        return self._with_recomputed(found, stream, part=_TOWER)

    def _learns(self, names: tuple[str, ...]) -> bool:
        """Whether anything whose name begins so is trained."""
        return any(each.requires_grad for name, each in self._model.named_parameters() if name.startswith(names))

    def _with_recomputed(self, layers: list[int], stream: int, *, part: str) -> int:
        """What layers keep, of which some keep their input alone, and one of these is computed again."""
        every = self._config.recompute.get(part, 0)
        again = layers[::every] if every else []
        kept = sum(layers) - sum(again) + sum(min(stream, each) for each in again)
        return int(kept * self._on_their_way()) + max(again, default=0)

    def _on_their_way(self) -> float:
        """Micro-batches whose activations the stage keeps at a time (1F1B; Narayanan et al., section 2.2)."""
        stages, chunks = self._config.pipeline, self._config.pipeline_chunks
        ahead = stages - self._stage
        if chunks > 1:
            ahead = 2 * (stages - self._stage - 1) + (chunks - 1) * stages + 1
        return min(ahead, self._load.micro_batches * chunks) / chunks

    def _loss(self) -> int:
        """Scores in float32 with their gradient, and a float32 gradient of the head where it is trained."""
        if not self._last:
            return 0
        words = share(self._language.vocab_size, self._config.tensor)
        chunk = min(DEFAULT_CHUNK_TOKENS, self._load.tokens) * words * (2 * _FLOAT32_BYTES + self._width)
        head = self._model.language_model.head_weight
        return chunk + (words * self._language.dim * _FLOAT32_BYTES if head.requires_grad else 0)
