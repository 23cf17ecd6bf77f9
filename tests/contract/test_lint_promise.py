"""What lint passes, reading and decoding with the same options never fail on; and what it refuses, they refuse too."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.data.index.lint_quarantine import exclude_from_split
from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.media.image_options import ImageOptions
from omniloom.errors import SampleError
from tests.contract.corruption import archive, corrupt, linted, prepared, read_all, sound_parts

SOUND = sound_parts()
DECODERS = {
    "as it is": SampleDecoder(late=True),
    "greys, partly": SampleDecoder(image_decode="l8", images=ImageOptions(min_fraction=0.4)),
    "small": SampleDecoder(image_decode="rgba", images=ImageOptions(max_pixels=1_000)),
    "no frames": SampleDecoder(image_decode="pil", images=ImageOptions(frame="refuse", orient=False)),
    "lazy json": SampleDecoder(late=True, strict_json=False),
}


def test_sound_parts_are_sound(tmp_path: Path) -> None:
    root = prepared(tmp_path / "d", archive([("a", SOUND), ("b", SOUND)]))
    report = linted(root, DECODERS["as it is"])
    assert (report.errors, report.samples, report.quarantine) == (0, 2, [])
    assert read_all(root, DECODERS["as it is"], rows=2) == ({0: "a", 1: "b"}, {})


def check_parts(draw: random.Random, decoder: SampleDecoder, *, samples: int) -> int:
    """Samples of one part, most of them corrupt: lint and the reader agree on each. Returns how many were bad."""
    made = []
    for number in range(samples):
        part, data = draw.choice(list(SOUND.items()))
        made.append((f"{number:04d}", {part: corrupt(data, draw) if draw.random() < 0.9 else data}))
    with tempfile.TemporaryDirectory() as folder:
        root = prepared(Path(folder, "d"), archive(made))
        report = linted(root, decoder)
        _, failed = read_all(root, decoder, rows=samples)
        bad = {name.rpartition("/")[2] for name in report.quarantine}
        # Lint also refuses what needs no decoding: a part without bytes is no array, number, image or JSON.
        assert {f"{row:04d}" for row in failed} == bad, (failed, [f for f in report.findings if f.level == "error"])
        exclude_from_split(root, report.quarantine)
        assert linted(root, decoder).errors == 0
        left, failed = read_all(root, decoder, rows=samples)
        assert set(failed.values()) <= {"SkipSample"}
        assert len(left) == samples - len(bad)
    return len(bad)


def check_shard(draw: random.Random, decoder: SampleDecoder) -> str:
    """A shard that was damaged after it was indexed. Returns what came of it: ``passed`` or ``refused``."""
    samples = [(f"{n}", {part: SOUND[part] for part in draw.sample(sorted(SOUND), 3)}) for n in range(3)]
    tar = archive(samples)
    with tempfile.TemporaryDirectory() as folder:
        root = prepared(Path(folder, "d"), tar)
        (root / "s.tar").write_bytes(corrupt(tar, draw))
        report = linted(root, decoder)
        read, failed = read_all(root, decoder, rows=3)
        assert all(samples[row][0] == key for row, key in read.items()), (read, "another sample under this row")
        if report.errors == 0:
            assert failed == {}
            assert len(read) == 3
        return "refused" if report.errors else "passed"


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32), which=st.sampled_from(sorted(DECODERS)))
def test_corrupt_parts(seed: int, which: str) -> None:
    check_parts(random.Random(seed), DECODERS[which], samples=60)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), which=st.sampled_from(sorted(DECODERS)))
def test_corrupt_shards(seed: int, which: str) -> None:
    check_shard(random.Random(seed), DECODERS[which])


def check_bytes(data: bytes, part: str, decoder: SampleDecoder) -> str:
    """What comes of any bytes: ``decoded``, or the reason of their refusal. Every other error is a crash."""
    try:
        decoder.decode(part, data)
    except SampleError as error:
        return error.reason
    return "decoded"


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=200), part=st.sampled_from(sorted(SOUND)), which=st.sampled_from(sorted(DECODERS)))
def test_any_bytes_are_decoded_or_refused(data: bytes, part: str, which: str) -> None:
    assert check_bytes(data, part, DECODERS[which]).replace("-", "").isalpha()


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data", "ignore:Truncated File Read")
@pytest.mark.parametrize("part", sorted(SOUND))
def test_no_cut_of_a_part_crashes(part: str) -> None:
    draw = random.Random(part)
    for _ in range(60):
        assert check_bytes(SOUND[part][: draw.randrange(len(SOUND[part]))], part, DECODERS["as it is"])
