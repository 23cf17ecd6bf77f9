"""From a recipe to a run, in the order in which things depend on each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import distributed, nn

from omniloom.config.reading import to_plain
from omniloom.conversion import config_json
from omniloom.conversion.loading import load_weights
from omniloom.conversion.published import open_published, with_fresh_values
from omniloom.data.loader.config import WorkerConfig
from omniloom.data.open import get_savable_loader, get_train_dataset, get_val_dataset
from omniloom.errors import ConfigError
from omniloom.model.build import build as build_module
from omniloom.model.config import LlavaConfig
from omniloom.model.families import read_config_file
from omniloom.model.initialize import initialize
from omniloom.parallel.feed import GroupLoader
from omniloom.parallel.plan import lay_out, parallelize
from omniloom.storage.files import replace_file
from omniloom.train.batches import PackedMicroBatch
from omniloom.train.checkpoint import CheckpointConfig, Checkpoints, complete_checkpoints
from omniloom.train.loop import Run
from omniloom.train.optimizer import make_optimizer
from omniloom.train.parts import freeze
from omniloom.train.recipe import DataConfig, ModelConfig, Recipe
from omniloom.train.step import mean_loss
from omniloom.vlm.image_processor import ImageProcessor
from omniloom.vlm.layouts import CentreCrop, DynamicTiles, Layout, PadToSquare, Squash
from omniloom.vlm.statistics import PixelStatistics
from omniloom.vlm.task_encoder import LlavaSettings, LlavaTaskEncoder
from omniloom.vlm.tokenizer import open_tokenizer

RECIPE_FILE = "recipe.yaml"


def build(recipe: Recipe) -> Run:
    """Everything that a run works with. All ranks call it."""
    device = own_device()
    ranks = lay_out(recipe.parallel, device=device.type)

    config = read_model_config(Path(recipe.model.folder))
    model = load_model(recipe.model, config, seed=recipe.seed).to(device)
    freeze(model, recipe.parts)
    model = parallelize(model, recipe.parallel, ranks)

    workers = WorkerConfig(
        rank=ranks.data_rank, world_size=ranks.data_ranks, data_parallel_group=ranks.data,
        num_workers=recipe.data.num_workers, lanes=recipe.data.lanes, seed_offset=recipe.seed,
    )  # fmt: skip
    encoder = task_encoder(recipe.data, config, Path(recipe.model.folder))
    own = get_savable_loader(training_data(recipe.data, encoder, workers)) if ranks.loads else None
    tensor_group = ranks.tensor_mesh.get_group() if ranks.tensor_mesh is not None else None

    folder = Path(recipe.folder)
    if not distributed.is_initialized() or distributed.get_rank() == 0:
        replace_file(folder / RECIPE_FILE, yaml.safe_dump(to_plain(recipe), sort_keys=False))
    return Run(
        model=model,
        optimizer=make_optimizer(model, recipe.parts, recipe.optimizer),
        loader=GroupLoader(own, group=tensor_group, device=device),
        checkpoints=Checkpoints(folder, recipe.checkpoint),
        loop=recipe.loop,
        schedule=recipe.schedule,
        log=recipe.log,
        folder=folder,
        group=ranks.data,
        everyone=ranks.everyone,
        after_step=_validation(recipe, model, encoder, workers, device),
        facts={"recipe": to_plain(recipe)},
    )


def own_device() -> torch.device:
    """The accelerator of this rank of its machine, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cuda", torch.cuda.current_device())


def read_model_config(folder: Path) -> LlavaConfig:
    """The model of a folder. Raises ConfigError where it is not a whole vision-language model."""
    ours = folder / config_json.FILE
    config = config_json.config_from_json(ours) if ours.is_file() else read_config_file(folder)
    if not isinstance(config, LlavaConfig):
        raise ConfigError(
            f"{folder}: a {type(config).__name__} found; a vision-language model expected. Put one together of a "
            "language model and a tower with `omniloom weights combine`."
        )
    return config


def load_model(settings: ModelConfig, config: LlavaConfig, *, seed: int) -> nn.Module:
    """The model with its weights: of the folder, in any published form, or of a run; fresh ones where asked for."""
    model = build_module(config)
    parts = [name for name, _ in model.named_children()]
    unknown = [name for name in settings.fresh if name not in parts]
    if unknown:
        raise ConfigError(f"model.fresh: {unknown[0]!r} found; some of {', '.join(parts)} expected.")
    generator = torch.Generator().manual_seed(seed)
    if settings.start is not None:
        _start_from(model, Path(settings.start))
    elif set(settings.fresh) != set(parts):
        published = open_published(Path(settings.folder), fresh=settings.fresh)
        load_weights(model, with_fresh_values(published, seed=seed))
        published.source.close()
    for name, part in model.named_children():
        if name in settings.fresh:
            initialize(part, generator=generator)
    return model


def task_encoder(
    data: DataConfig, config: LlavaConfig, folder: Path, *, template: str | None = None
) -> LlavaTaskEncoder:
    """What makes batches of samples for a model; ``template`` in place of the data's."""
    side = config.vision.image_size
    layouts: Mapping[str, Callable[[], Layout]] = {
        "squash": Squash,
        "pad": PadToSquare,
        "crop": CentreCrop,
        "tiles": lambda: DynamicTiles(max_tiles=data.max_tiles),
    }
    return LlavaTaskEncoder(
        tokenizer=open_tokenizer(folder),
        template=template or data.template,
        images=ImageProcessor(
            tile_pixels=side,
            tile_tokens=config.image_tokens(side, side),
            tower=PixelStatistics(config.vision.pixel_mean, config.vision.pixel_std),
            layout=layouts[data.layout](),
        ),
        settings=LlavaSettings(
            max_tokens=data.max_tokens, image_id=config.image_token_id, pack_tokens=data.pack_tokens
        ),
    )


def training_data(data: DataConfig, encoder: LlavaTaskEncoder, workers: WorkerConfig) -> Any:
    """The data set that is trained on."""
    return get_train_dataset(
        data.train,
        split_part=data.split_part,
        worker_config=workers,
        batch_size=data.batch_size,
        packing_buffer_size=data.packing_buffer_size if data.pack_tokens is not None else None,
        shuffle_buffer_size=data.shuffle_buffer_size,
        max_samples_per_sequence=100,
        task_encoder=encoder,
    )


def _validation(
    recipe: Recipe, model: nn.Module, encoder: LlavaTaskEncoder, workers: WorkerConfig, device: torch.device
) -> Callable[[int], Mapping[str, float]] | None:
    """Called after each step: the loss on held-out data when it is due."""
    settings, data = recipe.evaluation, recipe.data
    if not settings.every_steps or data.validation is None:
        return None
    dataset = get_val_dataset(
        data.validation,
        split_part=data.validation_split_part,
        worker_config=workers,
        batch_size=data.batch_size,
        limit=settings.batches,
        task_encoder=encoder,
        equal_steps=False,
    )

    def after_step(step: int) -> Mapping[str, float]:
        if step % settings.every_steps and step != recipe.loop.steps:
            return {}
        model.eval()
        with get_savable_loader(dataset, num_workers=0) as loader:
            batches = [PackedMicroBatch.of(batch, device) for batch in islice(loader, settings.batches)]
        loss, tokens = mean_loss(model, batches, group=workers.data_parallel_group)
        model.train()
        return {"validation_loss": loss, "validation_tokens": tokens}

    return after_step


def _start_from(model: nn.Module, path: Path) -> None:
    found = {0: path} if (path / "trainer.json").is_file() else complete_checkpoints(path)
    if not found:
        raise ConfigError(f"model.start: {path}: no complete checkpoint of a run there.")
    Checkpoints(path, CheckpointConfig()).restore(found[max(found)], model, None)
