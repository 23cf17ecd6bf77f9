"""What a recipe would do, without doing it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import mean

import torch

from omniloom.data.loader.config import WorkerConfig
from omniloom.data.open import get_savable_loader
from omniloom.errors import ConfigError, OmniloomError
from omniloom.model.build import build as build_module
from omniloom.model.config import LlavaConfig
from omniloom.model.lora import add_lora
from omniloom.parallel.memory import KINDS, Load, PartMemory, RankMemory, rank_memory
from omniloom.train.batches import work_of
from omniloom.train.data import task_encoder, training_data
from omniloom.train.fault_counts import left_out_in_words, left_out_of
from omniloom.train.flops import Work, training_flops
from omniloom.train.meter import PEAK_FLOPS, peak_flops
from omniloom.train.model_files import model_config
from omniloom.train.parts import counts, freeze, lora_of
from omniloom.train.recipe import Recipe, refuse_contradictions
from omniloom.train.schedule import learning_rate

_SAMPLED_BATCHES = 16
_SAMPLED_SAMPLES = 64
_RESERVE = 0.1  # of a device's memory: the driver, kernels' own buffers, pieces between tensors
_USUAL_SHARE = 0.4  # of the peak, of a well-kept run
_DEVICE = "H100"
_WEIGHT_BYTES = 4
_STATE_BYTES = 8  # Adam's two, for what is trained


@dataclass(frozen=True)
class _Sampled:
    """Micro-batches that were looked at; or the largest that may come, where the data is not there.

    Attributes:
        works: what they hold.
        obstacle: why no data could be read.
        left_out: what of the samples that were looked at is of no use, in words; empty: all of them are.
    """

    works: Sequence[Work]
    obstacle: str | None = None
    left_out: str = ""


def describe(recipe: Recipe, *, ranks: int = 1, device_bytes: int | None = None) -> str:
    """The plan of a run as text.

    Args:
        recipe: of the run. Neither weights nor data have to be there.
        ranks: of the job.
        device_bytes: memory of each device; ``None``: this machine's accelerator, if it has one.

    Raises:
        ConfigError: the recipe does not fit together, or not on so many ranks.
    """
    refuse_contradictions(recipe)
    config = model_config(recipe.model)
    model = build_module(config, device="meta")
    add_lora(model, lora_of(recipe.parts))
    freeze(model, recipe.parts)
    parts = counts(model)
    micro_batches = _micro_batches(recipe, ranks)
    sampled = _sample(recipe, config)
    largest = max(sampled.works, key=lambda work: sum(work.documents))
    load = Load(tokens=sum(largest.documents), tiles=largest.tiles, micro_batches=micro_batches)
    stages = [
        rank_memory(model, recipe.parallel, load, ranks=ranks, stage=stage) for stage in range(recipe.parallel.pipeline)
    ]
    if device_bytes is None and torch.cuda.is_available():
        device_bytes = torch.cuda.get_device_properties(0).total_memory
    sections = [
        [f"{recipe.folder}: {recipe.loop.steps:,} steps on {ranks} rank{'s' * (ranks > 1)}"],
        _parameters(parts),
        _data(recipe, sampled, micro_batches, ranks),
        _memory(stages, recipe, _batch_bytes(config, largest) * micro_batches, device_bytes),
        [_learning_rates(recipe)],
        [f"checkpoint: {_size(checkpoint_bytes(parts))}, over all ranks"],
        _time(
            recipe,
            config,
            sampled.works,
            trained=[part for part, (some, _) in parts.items() if some],
            micro_batches=micro_batches,
            ranks=ranks,
        ),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section)


def checkpoint_bytes(parts: Mapping[str, tuple[int, int]]) -> int:
    """Bytes of one step's checkpoint: all weights, and what the optimizer keeps of trained ones.

    Args:
        parts: numbers that are trained and frozen, by part.
    """
    trained = sum(some for some, _ in parts.values())
    return sum(map(sum, parts.values())) * _WEIGHT_BYTES + trained * _STATE_BYTES


def _micro_batches(recipe: Recipe, ranks: int) -> int:
    sharing = recipe.parallel.ranks_of_a_replica
    if ranks % sharing:
        raise ConfigError(f"parallel: {sharing} ranks share a batch; they do not divide {ranks} ranks. See --ranks.")
    number = recipe.data.micro_batches(data_ranks=ranks // sharing)
    return recipe.loop.micro_batches if number is None else number


def _sample(recipe: Recipe, config: LlavaConfig) -> _Sampled:
    data = recipe.data
    try:
        encoder = task_encoder(data, recipe.model, config)
        workers = WorkerConfig(rank=0, world_size=1, num_workers=0, lanes=data.lanes, seed_offset=recipe.seed)
        most = max(1, min(_SAMPLED_BATCHES, _SAMPLED_SAMPLES // data.batch_size))
        with get_savable_loader(training_data(data, encoder, workers)) as loader:
            works = [work_of(batch) for batch in islice(iter(loader), most)]
            reasons, samples = left_out_of(loader.stats())
        if works:
            return _Sampled(works, left_out=left_out_in_words(reasons, samples) if reasons else "")
        obstacle = "no batch came"
    except OmniloomError as error:
        obstacle = str(error)
    return _Sampled([_largest(recipe, config)], obstacle)


def _largest(recipe: Recipe, config: LlavaConfig) -> Work:
    """The most that a micro-batch may hold."""
    data, side = recipe.data, config.vision.image_size
    per_tile = config.image_tokens(side, side)
    documents = (
        (data.max_tokens,) * data.batch_size if data.pack_tokens is None else (data.pack_tokens,) * data.batch_size
    )
    tiles_of_image = {"tiles": data.max_tiles + data.thumbnail, "anyres": 5}.get(data.layout, 1)
    tiles = min(tiles_of_image * data.batch_size, sum(documents) // per_tile)
    if data.pack_tokens is not None:
        tiles = min(sum(documents) // per_tile, (data.pack_tiles or sum(documents)) * data.batch_size)
    return Work(documents=documents, learned_tokens=sum(documents) - tiles * per_tile, tiles=tiles)


def _parameters(parts: Mapping[str, tuple[int, int]]) -> list[str]:
    rows = [("parameters", "trained", "frozen")]
    rows += [(f"  {name}", f"{trained:,}", f"{frozen:,}") for name, (trained, frozen) in parts.items()]
    return _table(rows)


def _data(recipe: Recipe, sampled: _Sampled, micro_batches: int, ranks: int) -> list[str]:
    data, works = recipe.data, sampled.works
    tokens = mean(sum(work.documents) for work in works)
    loading = ranks // recipe.parallel.ranks_of_a_replica
    lines = []
    if sampled.obstacle is not None:
        lines += [f"data cannot be read yet: {sampled.obstacle}", "what follows is the most that the recipe allows:"]
    learned = mean(work.learned_tokens for work in works)
    lines += [
        f"a micro-batch{'' if sampled.obstacle else f' ({len(works)} looked at)'}: {tokens:,.0f} tokens, "
        f"{learned:,.0f} learned, {mean(len(work.documents) for work in works):,.1f} samples, "
        f"{mean(work.tiles + work.tiles_seen_before for work in works):,.1f} tiles",
        f"a step: {micro_batches} micro-batch{'es' * (micro_batches > 1)} of {loading} "
        f"rank{'s' * (loading > 1)}, {tokens * micro_batches * loading:,.0f} tokens",
    ]
    if sampled.left_out:
        lines.append(f"{sampled.left_out} (`omniloom inspect` shows them)")
    if data.pack_tokens is not None and sampled.obstacle is None:
        lines.append(f"packs are {100 * tokens / (data.pack_tokens * data.batch_size):.1f} % full")
    return lines


def _memory(stages: Sequence[RankMemory], recipe: Recipe, batch_bytes: int, device_bytes: int | None) -> list[str]:
    rows: list[tuple[str, ...]] = [("memory of a rank", *KINDS, "in all")]
    for stage, memory in enumerate(stages):
        place = f"stage {stage} " if len(stages) > 1 else ""
        rows += [_row(f"  {place}{part}", taken) for part, taken in memory.parts.items()]
        rows.append((f"  {place}its batches", *[""] * len(KINDS), _size(batch_bytes)))
        in_all = [_size(memory.of(kind)) for kind in KINDS]
        rows.append((f"  {place}in all", *in_all, _size(memory.total + batch_bytes)))
    lines = _table(rows)
    if device_bytes is None:
        return lines
    most = max(stages, key=lambda memory: memory.total)
    too_much = most.total + batch_bytes - device_bytes * (1 - _RESERVE)
    left = f"{_size(device_bytes)}, of which {_RESERVE:.0%} are left for kernels and gaps"
    if too_much <= 0:
        return [*lines, f"  fits into {left}"]
    advice = (f"  - {told}" for told in _advice(most, recipe))
    return [*lines, f"  DOES NOT FIT into {left}: {_size(too_much)} too much.", _greatest(most), *advice]


def _row(name: str, taken: PartMemory) -> tuple[str, ...]:
    return (name, *(_size(getattr(taken, kind)) for kind in KINDS), _size(taken.total))


def _greatest(memory: RankMemory) -> str:
    """What part it is that does not fit, and what of it takes most."""
    part, kind = memory.greatest
    taken = memory.parts[part]
    most = max(memory.parts, key=lambda name: memory.parts[name].total)
    told = f"  Most is of the {most}: {_size(memory.parts[most].total)} of {_size(memory.total)}"
    return f"{told}; the greatest piece: {kind} of the {part}, {_size(getattr(taken, kind))}."


def _batch_bytes(config: LlavaConfig, work: Work) -> int:
    """Images in float32, and ids, labels and positions; a step has all of its micro-batches on the device."""
    side = config.vision.image_size
    of_seen = config.image_tokens(side, side) * config.projector.reduced_dim
    numbers = work.tiles * 3 * side**2 + work.tiles_seen_before * of_seen
    return numbers * 4 + sum(work.documents) * 3 * 8


def _advice(memory: RankMemory, recipe: Recipe) -> list[str]:
    """What takes less, the greatest first, with the part that it is of."""
    parallel = recipe.parallel
    states = memory.of("weights") + memory.of("optimizer")
    told = [(states, "more ranks cut weights and optimizer states into smaller shares")]
    for part in ("vision_tower", "language_model"):
        kept = memory.parts[part].activations if part in memory.parts else 0
        if kept and not parallel.recompute.get(part):
            told.append((kept, f"parallel.recompute: {{{part}: 1}} keeps the inputs of its layers alone"))
    activations = memory.of("activations")
    if recipe.data.batch_size > 1:
        told.append((activations, f"data.batch_size below {recipe.data.batch_size} makes smaller micro-batches"))
    if parallel.gradients == "whole":
        told.append(
            (memory.of("gradients"), "parallel.gradients: sharded cuts gradients over ranks with each micro-batch")
        )
    if parallel.tensor == 1:
        of_language = memory.parts.get("language_model", PartMemory())
        cut = of_language.gradients + of_language.activations
        told.append((cut, "parallel.tensor cuts matrices of the language_model, their gradients and activations"))
    if parallel.tower_weights == "replicated" and "vision_tower" in memory.parts:
        told.append((memory.parts["vision_tower"].total, "parallel.tower_weights: sharded cuts the vision_tower's"))
    return [text for _, text in sorted(told, reverse=True)]


def _learning_rates(recipe: Recipe) -> str:
    """The rates of a run's steps, as they will be; a peak that is never reached is told."""
    schedule, steps = recipe.schedule, recipe.loop.steps
    first, last, highest = 0, steps - 1, min(schedule.warmup(steps), steps - 1)
    rates = {
        step: learning_rate(schedule, step, steps=steps) for step in (first, highest - 1, highest, last) if step >= 0
    }
    highest = max(rates, key=lambda step: rates[step])
    told = (
        f"learning rate, {schedule.decay}: {rates[first]:.3g} in the first step, {rates[highest]:.3g} in step "
        f"{highest + 1:,}, {rates[last]:.3g} in the last"
    )
    reached = rates[highest] > 0.95 * schedule.peak
    return told if reached else f"{told}; schedule.peak {schedule.peak:g} IS NEVER REACHED: the warm-up is too long"


def _time(
    recipe: Recipe,
    config: LlavaConfig,
    works: Sequence[Work],
    *,
    trained: Sequence[str],
    micro_batches: int,
    ranks: int,
) -> list[str]:
    """Operations of a step, and the time of a run at a usual share of the peak: an estimate."""
    each = mean(training_flops(config, work, trained=trained) for work in works)
    operations = each * micro_batches / recipe.parallel.ranks_of_a_replica
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    peak = peak_flops(device, told=recipe.log.peak_flops)
    name = "this device" if peak else f"an {_DEVICE}"
    seconds = operations / ((peak or PEAK_FLOPS[_DEVICE]) * _USUAL_SHARE)
    return [
        f"a step: {operations / 1e12:,.4g} TFLOP for each of {ranks} rank{'s' * (ranks > 1)}; at {_USUAL_SHARE:.0%} of "
        f"the peak of {name} it takes {_clock(seconds)}, the run {_clock(seconds * recipe.loop.steps)} (an estimate)"
    ]


def _clock(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.3g} {unit}"
    return f"{seconds:.3g} seconds"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]


def _size(number: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"
