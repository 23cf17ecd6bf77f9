"""Names with several dots: doubted only where one key was perhaps meant to be several."""

from __future__ import annotations

from pathlib import Path

import pytest

from omniloom.data.index.field_map import parse_field
from omniloom.data.index.lint_names import doubtful_names, explain_name
from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.shards.keys import KEY_TABLE
from omniloom.data.shards.scan import scan_shard
from tests.contract.corruption import archive


@pytest.mark.parametrize(
    ("samples", "doubted"),
    [
        ({"22": ["05.png", "06.png", "txt"]}, ["22.05.png", "22.06.png"]),  # C01
        ({"2024-01-01": ["10.png", "11.png"], "2024-01-02": ["10.png", "11.png"]}, 4),
        ({"a": ["0.jpg", "1.jpg", "json", "extra.json"], "b": ["0.jpg", "json"]}, []),  # what converters write
        ({"a": ["0.jpg", "extra.json"]}, []),
        ({"a": ["seg.png", "png"], "b": ["seg.png", "png"]}, []),
        ({"a": ["jpg", "box.json"]}, ["a.box.json"]),
        ({"a": ["v1.jpg"], "b": ["v2.jpg"]}, ["a.v1.jpg", "b.v2.jpg"]),
        ({"a": ["00.jpg", "01.jpg"]}, ["a.00.jpg", "a.01.jpg"]),
    ],
)
def test_doubtful_names(samples: dict[str, list[str]], doubted: list[str] | int, tmp_path: Path) -> None:
    tar = tmp_path / "s.tar"
    tar.write_bytes(archive([(key, dict.fromkeys(parts, b"x")) for key, parts in samples.items()]))
    found = doubtful_names(scan_shard(tar, shard="s.tar"), {})
    assert len(found) == doubted if isinstance(doubted, int) else found == doubted


def test_a_part_that_a_field_map_names_is_meant(tmp_path: Path) -> None:
    tar = tmp_path / "s.tar"
    tar.write_bytes(archive([("a", {"jpg": b"x", "box.json": b"x"})]))
    assert doubtful_names(scan_shard(tar, shard="s.tar"), {"boxes": parse_field("box.json[a]")}) == []


def test_every_example_of_the_published_table_is_explained_as_it_says() -> None:
    for example in KEY_TABLE:
        readings = {reading.rule: reading for reading in explain_name(example.name, decoder=SampleDecoder())}
        reading = readings[example.rule]
        assert (reading.key, reading.part) == (example.key, example.part)
        assert bool(reading.ignored) == (example.key is None)
