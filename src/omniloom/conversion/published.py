"""Any published form of a model, seen as ours: its config, and its tensors under our names, checked one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from omniloom.conversion import config_json
from omniloom.conversion.megatron_parts import implied_config, table_to_read
from omniloom.errors import ConfigError, WeightsError
from omniloom.model.build import build, parameter_shapes
from omniloom.model.config import DecoderConfig, LlavaConfig, VisionConfig
from omniloom.model.families import fitting_table, read_config, read_config_file, tables_of
from omniloom.model.families.family import Config
from omniloom.model.hugging_face import REFERENCE, load_hugging_face, local_folder
from omniloom.model.initialize import initialize
from omniloom.weights.gguf_file import GgufFile, gguf_table, hf_config_of_gguf
from omniloom.weights.hf_folder import is_hf_folder, open_hf_folder
from omniloom.weights.megatron_dist import DistFolder, is_dist_folder
from omniloom.weights.megatron_folder import MegatronFolder, is_megatron_folder
from omniloom.weights.onnx_file import OnnxTower, hf_config_of_onnx
from omniloom.weights.openai_clip import hf_config_of_openai_clip, open_openai_clip, openai_clip_table
from omniloom.weights.safetensors_file import SafetensorsFile
from omniloom.weights.source import InMemory, Joined, Source
from omniloom.weights.table import Table
from omniloom.weights.view import OursView, check_shapes

Form = Literal["omniloom", "hf", "transformers", "megatron", "megatron-dist", "openai-clip", "gguf", "onnx"]
SIDECAR = "omniloom"
LEFTOVER = "leftover.safetensors"
# What a model's folder holds beside config and weights; taken along wherever the weights go.
COMPANIONS = (
    *("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "generation_config.json", "chat_template.json", "chat_template.jinja"),
    *("preprocessor_config.json", "processor_config.json"),
)
# Guides and Megatron call the parts by other names.
PART_PREFIXES: Mapping[str, str] = {
    "vision_projection": "projector.",
    "projector": "projector.",
    "multi_modal_projector": "projector.",
    "vision_model": "vision_tower.",
    "vision_tower": "vision_tower.",
    "language_model": "language_model.",
}
_NAMES_SHOWN = 6


class _Raw(NamedTuple):
    config: Config
    source: Source
    table: Table | None  # None: the names are ours already


@dataclass(frozen=True)
class Published:
    """A model in some form.

    Attributes:
        path: where it is.
        form: what form that is.
        config: what model it is.
        source: its tensors under our names; complete, but for ``fresh`` names.
        companions: tokenizer, processor and other files that lie beside the weights.
        fresh: our names that start anew because they were asked to.
        neutral: our names that the form has no place for; they have the values of a norm that does nothing.
    """

    path: Path
    form: Form
    config: Config
    source: Source
    companions: Mapping[str, Path] = field(default_factory=dict)
    fresh: tuple[str, ...] = ()
    neutral: tuple[str, ...] = ()


def form_of(path: Path) -> Form:
    """Which form lies at a path.

    Raises:
        WeightsError: nothing that is known here.
    """
    if str(path).startswith(REFERENCE):
        return "transformers"
    if path.is_file():
        return {".gguf": "gguf", ".onnx": "onnx"}.get(path.suffix, "openai-clip")  # type: ignore[return-value]
    if not path.is_dir():
        raise WeightsError(f"{path}: is not there. Fetch it first (`omniloom fetch`), or correct the path.")
    tests: tuple[tuple[Form, Callable[[Path], bool]], ...] = (
        ("omniloom", lambda folder: (folder / config_json.FILE).is_file()),
        ("megatron-dist", is_dist_folder),
        ("megatron", is_megatron_folder),
        ("hf", is_hf_folder),
        ("openai-clip", lambda folder: len(list(folder.glob("*.pt"))) == 1),
        ("gguf", lambda folder: len(list(folder.glob("*.gguf"))) == 1),
    )
    for form, fits in tests:
        if fits(path):
            return form
    names = ", ".join(sorted(inner.name for inner in path.iterdir())[:_NAMES_SHOWN])
    raise WeightsError(
        f"{path}: holds no weights in a form that is known here; found {names or 'nothing'}. Known are folders of "
        "Hugging Face, Megatron and omniloom, archives of OpenAI's CLIP, GGUF and ONNX."
    )


def open_published(path: Path, *, config: Path | None = None, fresh: Iterable[str] = ()) -> Published:
    """Open a model in any form.

    Args:
        path: file or folder.
        config: config.json, omniloom.json, or a folder with one; where the form does not say what model it holds.
        fresh: parts that may be missing and then start anew, such as ``vision_projection``.

    Raises:
        WeightsError: tensors are left over on either side or have other shapes (all are listed), or files are unsound.
        ConfigError: the config is missing or cannot be honoured.
    """
    form = form_of(path)
    if form == "transformers":
        path = local_folder(str(path))
    raw = _OPENERS[form](path, None if config is None else read_any_config(config))
    prefixes = part_prefixes(fresh)
    expected = parameter_shapes(raw.config)
    source: Source = raw.source if raw.table is None else OursView(raw.source, raw.table, fresh=prefixes)
    leftover = path / SIDECAR / LEFTOVER
    if form.startswith("megatron") and leftover.is_file():
        source = Joined(source, SafetensorsFile(leftover))
    unplaced = () if raw.table is None else raw.table.unplaced
    neutral = tuple(name for name in unplaced if name not in source.tensors)
    if neutral:
        dtype = next(iter(source.tensors.values())).dtype
        source = Joined(source, _neutral({name: expected[name] for name in neutral}, dtype))
    check_shapes(source, expected, fresh=prefixes)
    missing = tuple(name for name in expected if name not in source.tensors)
    return Published(path, form, raw.config, source, companions_of(path), missing, neutral)


def read_any_config(path: Path) -> Config:
    """The config of an omniloom.json or a config.json, or of the one in a folder."""
    own = path / config_json.FILE if path.is_dir() else path
    if own.name == config_json.FILE and own.is_file():
        return config_json.config_from_json(own)
    return read_config_file(path)


def part_prefixes(parts: Iterable[str]) -> tuple[str, ...]:
    """Our prefixes of parts under any of their names.

    Raises:
        WeightsError: there is no such part.
    """
    parts = tuple(parts)
    unknown = [part for part in parts if part not in PART_PREFIXES]
    if unknown:
        raise WeightsError(f"there is no part {unknown[0]!r} to start anew; parts are {', '.join(PART_PREFIXES)}")
    return tuple(PART_PREFIXES[part] for part in parts)


def with_fresh_values(published: Published, *, seed: int = 0, dtype: torch.dtype | None = None) -> Source:
    """The model's tensors, complete: what starts anew has fresh values.

    Args:
        published: a model that may have parts that start anew.
        seed: of the fresh values.
        dtype: of the fresh values; ``None`` is that of most other tensors.
    """
    if not published.fresh:
        return published.source
    dtype = dtype or common_dtype(published.source)
    module = build(published.config, device="meta")
    prefix = prefix_of(published.config)
    tensors = {}
    for owner in sorted({name.split(".")[0] for name in published.fresh}):
        part = module.get_submodule(owner) if not prefix else module
        part.to_empty(device="cpu")
        initialize(part, generator=torch.Generator().manual_seed(seed))
        tensors.update({f"{owner}.{name}": value.detach().to(dtype) for name, value in part.named_parameters()})
    fresh = InMemory({name: tensors[name] for name in published.fresh}, where="fresh values")
    return Joined(published.source, fresh)


def prefix_of(config: Config) -> str:
    """What stands before a part's parameters in a whole model; empty for a whole model."""
    if isinstance(config, DecoderConfig):
        return "language_model."
    return "vision_tower." if isinstance(config, VisionConfig) else ""


def common_dtype(source: Source) -> torch.dtype:
    """The dtype that most numbers of a source have."""
    counted: dict[torch.dtype, int] = {}
    for info in source.tensors.values():
        if info.dtype.is_floating_point:
            counted[info.dtype] = counted.get(info.dtype, 0) + info.size_bytes // info.dtype.itemsize
    return max(counted, key=counted.__getitem__, default=torch.float32)


def _open_omniloom(path: Path, config: Config | None) -> _Raw:
    return _Raw(config or config_json.config_from_json(path / config_json.FILE), open_hf_folder(path), None)


def _open_hf(path: Path, config: Config | None) -> _Raw:
    source = open_hf_folder(path)
    config = config or read_config_file(path)
    tables = tables_of(config)
    if isinstance(config, LlavaConfig):
        tables = (*tables, *tables_of(config, form="internvl"))
    return _Raw(config, source, fitting_table(tables, source.tensors))


def _open_transformers(path: Path, config: Config | None) -> _Raw:
    """All values through transformers, which knows old names of its tensors; in memory, since it reads them at once."""
    if config is not None:
        raise ConfigError(f"{REFERENCE}{path}: such a folder has its own config.json; give no other.")
    wrapper = load_hugging_face(str(path), dtype="auto")
    tensors = {f"language_model.{name}": value.detach() for name, value in wrapper.named_parameters()}
    return _Raw(wrapper.config, InMemory(tensors, where=f"{REFERENCE}{path}"), None)


def _open_megatron(path: Path, config: Config | None) -> _Raw:
    source = DistFolder(path) if is_dist_folder(path) else MegatronFolder(path)
    sidecar = path / SIDECAR / config_json.FILE
    if config is None and sidecar.is_file():
        config = config_json.config_from_json(sidecar)
    config = config or implied_config(source, source.args, alone=source.alone)
    return _Raw(config, source, table_to_read(config, source))


def _open_openai_clip(path: Path, config: Config | None) -> _Raw:
    file = path if path.is_file() else next(iter(path.glob("*.pt")))
    source = open_openai_clip(file)
    config = config or read_config(hf_config_of_openai_clip(source))
    if not isinstance(config, VisionConfig):
        raise WeightsError(f"{path}: holds a tower; the config given is of something else")
    return _Raw(config, source, openai_clip_table(dim=config.dim, num_layers=config.num_layers))


def _open_gguf(path: Path, config: Config | None) -> _Raw:
    file = GgufFile(path if path.is_file() else next(iter(path.glob("*.gguf"))))
    config = config or read_config(hf_config_of_gguf(file))
    if not isinstance(config, DecoderConfig):
        raise WeightsError(f"{path}: holds a language model; the config given is of something else")
    return _Raw(config, file, gguf_table(config, architecture=str(file.fields.get("general.architecture"))))


def _open_onnx(path: Path, config: Config | None) -> _Raw:
    source = OnnxTower(path)
    config = config or read_config(hf_config_of_onnx(source))
    table = fitting_table(tables_of(config), source.tensors)
    # What such graphs carry besides the tower are the heads that its maker trained.
    return _Raw(config, source, table)


def _neutral(shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype) -> Source:
    return InMemory(
        {
            name: torch.zeros(shape, dtype=dtype) if name.endswith("bias") else torch.ones(shape, dtype=dtype)
            for name, shape in shapes.items()
        },
        where="neutral values",
    )


def companions_of(path: Path) -> dict[str, Path]:
    """The files beside a model's weights that go where the weights go: tokenizer, processor and their like."""
    folder = path if path.is_dir() else path.parent
    if (path / SIDECAR).is_dir():
        folder = path / SIDECAR
    return {name: folder / name for name in COMPANIONS if (folder / name).is_file()}


_OPENERS: Mapping[Form, Callable[[Path, Config | None], _Raw]] = {
    "omniloom": _open_omniloom,
    "hf": _open_hf,
    "transformers": _open_transformers,
    "megatron": _open_megatron,
    "megatron-dist": _open_megatron,
    "openai-clip": _open_openai_clip,
    "gguf": _open_gguf,
    "onnx": _open_onnx,
}
