"""What is fuzzed: each target is fed corrupt bytes, checks what comes back, and says in a word what came of them.

A target raises nothing but AssertionError: an answer that is wrong, or an error of no known type, is a crash.
"""

from __future__ import annotations

import functools
import io
import json
import math
import random
import tarfile
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from omniloom.data.index.database import find_all
from omniloom.data.index.dataset import open_dataset
from omniloom.data.index.lint_media import media_faults
from omniloom.data.index.prepare import prepare_dataset
from omniloom.data.index.tar_rows import TarRows
from omniloom.data.index.yaml_dialect import dump_yaml, load_yaml
from omniloom.data.media.av_parts import decode_av
from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.media.image import decode_image
from omniloom.data.media.json_part import parse_strict_json
from omniloom.data.media.probe import image_size
from omniloom.data.shards.scan import scan_shard
from omniloom.errors import ConfigError, OmniloomError, SampleError, ShardError, SkipSample, StorageError
from tests.contract.corruption import archive, corrupt, sound_parts
from tests.contract.media_clips import clip, tone
from tests.contract.test_lint_promise import DECODERS, check_parts, check_shard

PARTS = sound_parts()
IMAGES = [part for part in PARTS if part.rpartition(".")[2] in ("jpg", "png", "gif", "webp", "tiff", "bmp", "jp2")]
SAMPLES = [(f"sample{n}", {"txt": f"text {n}".encode() * n, "cls": str(n).encode()}) for n in range(1, 6)]
TAR = archive([*SAMPLES, ("k" * 150, {"txt": b"long"})])
JSONS = [
    PARTS["json"],
    b'\xef\xbb\xbf{"a": [1.5e3, -0, true, null], "b\\u00e9": "\\ud83d\\ude00"}',
    json.dumps({"conversations": [{"from": "human", "value": "<image>\nWhat?"}] * 3, "id": 1}).encode(),
    b"[" * 50 + b"1" + b"]" * 50,
    b'{"n": 123456789012345678901234567890, "e": 1e308}',
]
YAMLS = [
    b"__module__: megatron.energon\n__class__: CrudeWebdataset\nsubflavors: {a: 1, b: [x, 'y', 1.5]}\n",
    b"split_parts:\n  train:\n  - shard_{000..009}.tar\n  val: []\nexclude: [shard_001.tar/a]\n",
    b"base: &b\n  weight: 0.5\n  path: ./x\nsplits:\n  train:\n    blend:\n    - <<: *b\n      subflavors: null\n",
    'text: |\n  zwölf\n  lines\nfolded: >-\n  a\n  b\nempty:\nyes: "no"\n'.encode(),
]
INDEX_FILES = ("s.tar.idx", ".nv-meta/.info.json", ".nv-meta/split.yaml", ".nv-meta/index.sqlite")


class Target(NamedTuple):
    """Something that reads bytes which it does not trust.

    Attributes:
        name: for the page.
        check: makes corrupt bytes from a source of chance, feeds them in and checks the answer; gives a word for it.
        inputs: how many inputs one call tries.
    """

    name: str
    check: Callable[[random.Random], str]
    inputs: int = 1


def tar_walker(draw: random.Random) -> str:
    """A damaged archive: whole samples under their own names, or a typed refusal."""
    return tar_bytes(corrupt(TAR, draw))


def mended_tar_bytes(data: bytes) -> str:
    """As `tar_bytes`, with the checksum of every header made right: without it nothing behind the check is reached."""
    blocks = bytearray(data)
    for at in range(0, len(data) - tarfile.BLOCKSIZE + 1, tarfile.BLOCKSIZE):
        if blocks[at + 257 : at + 262] == b"ustar":
            blocks[at + 148 : at + 156] = b" " * 8
            blocks[at + 148 : at + 156] = b"%06o\0 " % sum(blocks[at : at + tarfile.BLOCKSIZE])
    return tar_bytes(bytes(blocks))


def tar_bytes(data: bytes) -> str:
    """As `tar_walker`, of given bytes."""
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        file.write(data)
        file.flush()
        try:
            scan = scan_shard(file.name, shard="s.tar")
        except (ShardError, StorageError) as error:
            return getattr(error, "reason", "storage")
    for start, stop in zip(scan.part_starts, scan.part_stops, strict=True):
        assert 0 <= start <= stop <= len(data)
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            names = [member.name for member in tar if member.isfile()]
    except tarfile.TarError:
        return "read"
    found = [f"{scan.keys[row]}.{part}" for row, part in zip(scan.part_rows, scan.part_names, strict=True)]
    # Python's reader stops at the first bad header without a word: it may see less, never more.
    assert len(found) + sum(scan.ignored.values()) >= len(names), (found, names)
    return "read"


def json_reader(draw: random.Random) -> str:
    """Damaged JSON: the value that Python reads, or a refusal; Python's refusals are refusals here too."""
    return json_bytes(corrupt(draw.choice(JSONS), draw))


def json_bytes(data: bytes) -> str:
    """As `json_reader`, of given bytes."""
    try:
        value = parse_strict_json(data)
    except SampleError as error:
        return error.reason
    expected = json.loads(data.removeprefix(b"\xef\xbb\xbf").rstrip(b"\0").decode())
    assert value == expected
    assert json.loads(json.dumps(value, allow_nan=False).encode()) == value
    return "read"


def image_probe(draw: random.Random) -> str:
    """A damaged image: the size of the pixels that are then decoded, or a refusal."""
    return image_bytes(corrupt(PARTS[draw.choice(IMAGES)], draw))


def image_bytes(data: bytes) -> str:
    """As `image_probe`, of given bytes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            width, height = image_size(data)
        except (SampleError, ConfigError) as error:
            return getattr(error, "reason", "missing-extra")
        assert width > 0
        assert height > 0
        try:
            pixels = decode_image(data)
        except (SampleError, ConfigError) as error:
            return getattr(error, "reason", "missing-extra")
    assert (pixels.shape, pixels.dtype) == ((height, width, 3), np.uint8)
    return "read"


def any_part(draw: random.Random) -> str:
    """A part under a name that says something else than its content."""
    decoder = SampleDecoder(late=True, guess_content=draw.random() < 0.5)
    name, data = draw.choice(list(PARTS)), corrupt(PARTS[draw.choice(list(PARTS))], draw)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            decoder.decode(name, data)
        except SampleError as error:
            return error.reason
    return "read"


def index_files(draw: random.Random) -> str:
    """A data set one of whose index files is damaged: its own samples under their rows, or a typed error."""
    files = _prepared_files()
    victim = draw.choice([*INDEX_FILES, *(name for name in files if name.startswith(".nv-meta/"))])
    return _read_with(victim, corrupt(files[victim], draw))


def index_bytes(data: bytes) -> str:
    """As `index_files`, of given bytes: the first one says which file the rest stands for."""
    return _read_with(INDEX_FILES[data[0] % len(INDEX_FILES)] if data else INDEX_FILES[0], data[1:])


def _read_with(victim: str, content: bytes) -> str:
    """What comes of a data set one of whose index files has another content."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, data in _prepared_files().items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content if name == victim else data)
        try:
            _read_by_index(root)
        except OmniloomError as error:
            return type(error).__name__
    return "read"


@functools.cache
def _prepared_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "s.tar").write_bytes(TAR)
        prepare_dataset(root, num_workers=1)
        return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def _read_by_index(root: Path) -> None:
    expected = {**dict(SAMPLES), "k" * 150: {"txt": b"long"}}
    places = find_all(root, "sample2")
    assert all(place.shard and place.row >= 0 for place in places)
    rows = TarRows(open_dataset(str(root), split_part="train"), split_config="split.yaml")
    for row in range(len(rows)):
        try:
            raw = rows.read(row)
        except SkipSample:
            continue
        assert raw.parts == expected.get(raw.name), (row, raw)
        assert raw.name == list(expected)[row], (row, raw.name)


def yaml_reader(draw: random.Random) -> str:
    """Damaged YAML: plain data that is read back the same once it is written, or a refusal."""
    return yaml_bytes(corrupt(draw.choice(YAMLS), draw))


def yaml_bytes(data: bytes) -> str:
    """As `yaml_reader`, of given bytes."""
    try:
        value = load_yaml(data, name="fuzz.yaml")
    except ConfigError:
        return "refused"
    if not _has_nan(value):
        assert load_yaml(dump_yaml(value), name="again.yaml") == value
    return "read"


def _has_nan(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_nan, value.values()))
    if isinstance(value, list):
        return any(map(_has_nan, value))
    return isinstance(value, float) and math.isnan(value)


def lint_and_parts(draw: random.Random) -> str:
    """A hundred damaged samples: lint refuses exactly those that reading and decoding fail on."""
    check_parts(draw, DECODERS[draw.choice(sorted(DECODERS))], samples=100)
    return "agreed"


def lint_and_shards(draw: random.Random) -> str:
    """A shard damaged after it was indexed: what lint passes is read whole."""
    return check_shard(draw, DECODERS[draw.choice(sorted(DECODERS))])


def video_and_sound(draw: random.Random) -> str:
    """A damaged clip: decoded to its end or refused, in bounded time; what lint passes decodes whole."""
    data = corrupt(draw.choice(_clips()), draw)
    try:
        faults = media_faults(data)
    except SampleError as error:
        return error.reason
    found = decode_av(data, av_decode="torch", video_decode_audio=True)
    assert found is not None
    return "read with remarks" if faults else "read"


@functools.cache
def _clips() -> list[bytes]:
    return [clip("mp4"), clip("matroska"), clip("avi"), tone()]


TARGETS = (
    Target("tar walker", tar_walker),
    Target("JSON reader", json_reader),
    Target("image probe and decoder", image_probe),
    Target("parts under wrong names", any_part),
    Target("index files", index_files),
    Target("YAML reader", yaml_reader),
    Target("video and sound", video_and_sound),
    Target("lint beside read and decode: samples", lint_and_parts, inputs=100),
    Target("lint beside read and decode: shards", lint_and_shards),
)

# For coverage-guided fuzzing, which makes the bytes itself.
BYTES: dict[str, Callable[[bytes], str]] = {
    "json": json_bytes,
    "image": image_bytes,
    "yaml": yaml_bytes,
    "tar": mended_tar_bytes,
    "index": index_bytes,
}
SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "json": lambda: JSONS,
    "image": lambda: [PARTS[name] for name in IMAGES],
    "yaml": lambda: YAMLS,
    "tar": lambda: [TAR],
    "index": lambda: [bytes([number]) + _prepared_files()[name] for number, name in enumerate(INDEX_FILES)],
}
"""Sound inputs to begin with."""
