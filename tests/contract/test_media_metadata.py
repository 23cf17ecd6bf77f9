"""Media metadata: found by any filter, in Energon's table, incrementally, and read by key without opening media."""

from __future__ import annotations

import io
import json
import os
import pickle
import sqlite3
import tarfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import omniloom
from omniloom.data.index import media_looking
from omniloom.data.index.layout import MEDIA_PARTIAL
from omniloom.data.index.media_extract import FilesRequest, MediaSource
from omniloom.data.index.media_filter import MediaFilterConfig, MediaFilterStrategy
from omniloom.data.index.media_prepare import add_media_metadata
from omniloom.data.index.media_store import MediaMetadataTable, get_media_metadata
from omniloom.data.index.prepare import prepare_dataset
from omniloom.data.media.metadata import (
    AVMetadata,
    ImageMetadata,
    MediaMetadataType,
    deserialize_media_metadata,
    serialize_media_metadata,
)
from omniloom.errors import ConfigError, DatasetError, StorageError
from omniloom.tools.main import commands
from tests.contract.made_clips import make_sound, make_video

BY_EXTENSION = MediaFilterConfig(MediaFilterStrategy.EXTENSION)
BY_HEADER = MediaFilterConfig(MediaFilterStrategy.HEADER)


def image(kind: str, *, size: tuple[int, int] = (6, 4), mode: str = "RGB") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((size[1], size[0], 3), np.uint8)).convert(mode).save(buffer, kind)
    return buffer.getvalue()


def write_shard(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def members_of(shard: int) -> dict[str, bytes]:
    return {
        f"{shard}/a.jpg": image("JPEG"),
        f"{shard}/a.txt": b"a text",
        f"{shard}/b.left.png": image("PNG", size=(9, 7), mode="L"),
        f"{shard}/b.right.gif": image("GIF", mode="P"),
        f"{shard}/c.mp4": make_video(frames=15),
        f"{shard}/d.wav": make_sound("wav", duration_seconds=0.5),
        f"{shard}/e.jpg": b"no image",
        f"{shard}/f.bin": image("PNG"),
    }


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    root = tmp_path / "set"
    root.mkdir()
    for shard in range(2):
        write_shard(root / f"shard-{shard}.tar", members_of(shard))
    prepare_dataset(root, num_workers=0)
    return root


def test_records_of_shards(shards: Path) -> None:
    found = add_media_metadata(shards, media_filter=BY_EXTENSION, num_workers=0)
    assert (found.kind, found.rows, found.rows_total, found.looked_at, found.unchanged) == ("webdataset", 10, 10, 2, 0)
    assert [(fault.entry_key, fault.reason) for fault in found.faults] == [
        ("0/e.jpg", "not-an-image"),
        ("1/e.jpg", "not-an-image"),
    ]
    table = MediaMetadataTable(shards)
    assert table["0/a.jpg"] == ImageMetadata(width=6, height=4, format="JPEG", mode="RGB")
    assert table["1/b.left.png"] == ImageMetadata(width=9, height=7, format="PNG", mode="L")
    assert table["1/b.right.gif"] == ImageMetadata(width=6, height=4, format="GIF", mode="P")
    video = table["0/c.mp4"]
    assert isinstance(video, AVMetadata)
    assert (video.video_num_frames, video.video_width, video.video_height, video.video_fps) == (15, 64, 48, 30.0)
    assert video.video_duration == pytest.approx(0.5)
    assert table["0/d.wav"] == AVMetadata(
        audio_duration=0.5, audio_channels=1, audio_sample_rate=16_000, audio_num_samples=8_000
    )
    assert "0/e.jpg" not in table
    assert "0/a.txt" not in table
    assert table.get("0/a.txt") is None
    assert len(table) == 10
    with pytest.raises(KeyError):
        table["nothing"]


def test_the_tables_are_those_of_energon(shards: Path) -> None:
    add_media_metadata(shards, media_filter=BY_EXTENSION, num_workers=0)
    with sqlite3.connect(shards / ".nv-meta/index.sqlite") as database:
        columns = [row[1:3] for row in database.execute("PRAGMA table_info(media_metadata)")]
        filters = database.execute("SELECT filter_id, strategy, patterns FROM media_filters").fetchall()
        row = database.execute("SELECT * FROM media_metadata WHERE entry_key = '0/a.jpg'").fetchone()
        samples = database.execute("SELECT count(*) FROM samples").fetchone()[0]
    assert columns == [("entry_key", "TEXT"), ("metadata_type", "TEXT"), ("metadata_json", "TEXT")]
    assert filters == [(1, "EXTENSION", "")]
    assert row == ("0/a.jpg", "image", '{"width":6,"height":4,"format":"JPEG","mode":"RGB"}')
    assert samples == 12


def test_content_and_patterns_tell_media_too(shards: Path) -> None:
    by_content = add_media_metadata(shards, media_filter=BY_HEADER, num_workers=0)
    assert by_content.rows == 12
    assert get_media_metadata(shards, "1/f.bin") == ImageMetadata(width=6, height=4, format="PNG", mode="RGB")
    by_pattern = add_media_metadata(
        shards, media_filter=MediaFilterConfig.parse("*.JPG, *f.bin", header=False, extension=False), num_workers=0
    )
    assert by_pattern.rows == 4
    assert by_pattern.rows_total == 12


def test_only_what_is_new_is_looked_at(shards: Path) -> None:
    add_media_metadata(shards, media_filter=BY_EXTENSION, num_workers=0)
    again = add_media_metadata(shards, media_filter=BY_EXTENSION, num_workers=0)
    assert (again.looked_at, again.unchanged, again.rows, again.rows_total) == (0, 2, 0, 10)
    write_shard(shards / "shard-2.tar", {"2/a.png": image("PNG")})
    write_shard(shards / "shard-1.tar", {"1/z.png": image("PNG", size=(3, 3))})
    prepare_dataset(shards, num_workers=0, keep_split=True)
    grown = add_media_metadata(shards, media_filter=BY_EXTENSION, num_workers=0)
    assert (grown.looked_at, grown.unchanged, grown.rows) == (2, 1, 2)
    keys = [key for key, _ in MediaMetadataTable(shards).items()]
    assert keys == ["0/a.jpg", "0/b.left.png", "0/b.right.gif", "0/c.mp4", "0/d.wav", "1/z.png", "2/a.png"]


def test_preparing_again_keeps_them(shards: Path) -> None:
    add_media_metadata(shards, media_filter=BY_EXTENSION, num_workers=0)
    prepare_dataset(shards, num_workers=0)
    assert len(MediaMetadataTable(shards)) == 10
    assert add_media_metadata(shards, media_filter=BY_EXTENSION, num_workers=0).looked_at == 0


def test_a_table_that_another_program_made_anew_is_filled_again(shards: Path) -> None:
    add_media_metadata(shards, media_filter=BY_EXTENSION, num_workers=0)
    with sqlite3.connect(shards / ".nv-meta/index.sqlite") as database:
        database.execute("DELETE FROM media_metadata")
    assert add_media_metadata(shards, media_filter=BY_EXTENSION, num_workers=0).rows == 10


def test_an_interrupted_run_goes_on_where_it_was(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = media_looking.media_of_shard
    looked_at: list[str] = []

    def dies_at_the_second(request: media_looking.ShardRequest) -> list[MediaSource]:
        looked_at.append(request.shard)
        if len(looked_at) == 2:
            raise KeyboardInterrupt
        return original(request)

    monkeypatch.setattr(media_looking, "media_of_shard", dies_at_the_second)
    monkeypatch.setattr(media_looking, "_COMMIT_SECONDS", -1.0)
    with pytest.raises(KeyboardInterrupt):
        add_media_metadata(shards, media_filter=BY_EXTENSION, num_workers=0)
    assert (shards / ".nv-meta" / MEDIA_PARTIAL).is_file()
    with pytest.raises(DatasetError, match="has no media metadata"):
        MediaMetadataTable(shards)
    found = add_media_metadata(shards, media_filter=BY_EXTENSION, num_workers=0)
    assert looked_at == ["shard-0.tar", "shard-1.tar", "shard-1.tar"]
    assert (found.rows, found.rows_total) == (5, 10)
    assert not (shards / ".nv-meta" / MEDIA_PARTIAL).exists()


def test_processes_find_the_same_as_one(shards: Path, tmp_path: Path) -> None:
    add_media_metadata(shards, media_filter=BY_EXTENSION, num_workers=2)
    alone = tmp_path / "alone"
    alone.mkdir()
    for shard in range(2):
        (alone / f"shard-{shard}.tar").write_bytes((shards / f"shard-{shard}.tar").read_bytes())
    prepare_dataset(alone, num_workers=0)
    add_media_metadata(alone, media_filter=BY_EXTENSION, num_workers=0, tmp_path=tmp_path / "build")
    assert list(MediaMetadataTable(shards).items()) == list(MediaMetadataTable(alone).items())


def test_folders_of_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "a.jpg").write_bytes(image("JPEG"))
    (tmp_path / "sub/b.png").write_bytes(image("PNG", size=(2, 3)))
    (tmp_path / "sub/c.txt").write_bytes(b"text")
    (tmp_path / ".hidden/d.png").write_bytes(image("PNG"))
    (tmp_path / "broken.png").symlink_to(tmp_path / "nowhere.png")
    found = add_media_metadata(tmp_path, media_filter=BY_EXTENSION, num_workers=0)
    assert (found.kind, found.rows, found.looked_at) == ("filesystem", 2, 3)
    assert [(fault.entry_key, fault.reason) for fault in found.faults] == [("broken.png", "unreadable")]
    assert get_media_metadata(tmp_path, "sub/b.png") == ImageMetadata(width=2, height=3, format="PNG", mode="RGB")
    (tmp_path / "a.jpg").unlink()
    (tmp_path / "broken.png").unlink()
    (tmp_path / "e.png").write_bytes(image("PNG"))
    again = add_media_metadata(tmp_path, media_filter=BY_EXTENSION, num_workers=0)
    assert (again.looked_at, again.unchanged, again.rows_total) == (1, 1, 2)
    assert [key for key, _ in MediaMetadataTable(tmp_path).items()] == ["e.png", "sub/b.png"]


def test_images_are_read_no_further_than_their_headers(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1_500, 1_500, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.png")
    file = media_looking.media_of_files
    (source,) = file(FilesRequest("a.png", str(tmp_path), ("a.png",), BY_EXTENSION))
    assert source.rows[0].metadata_json == '{"width":1500,"height":1500,"format":"PNG","mode":"RGB"}'
    cut = (tmp_path / "a.png").read_bytes()[:70_000]
    (tmp_path / "a.png").write_bytes(cut)
    (source,) = file(FilesRequest("a.png", str(tmp_path), ("a.png",), BY_EXTENSION))
    assert source.rows


def test_a_table_goes_to_other_processes_and_reads_many(shards: Path) -> None:
    add_media_metadata(shards, media_filter=BY_EXTENSION, num_workers=0)
    table = pickle.loads(pickle.dumps(MediaMetadataTable(shards)))
    found = table.get_many([f"{n % 2}/a.jpg" for n in range(1_200)] + ["none"])
    assert set(found) == {"0/a.jpg", "1/a.jpg"}
    child = os.fork()
    if child == 0:
        os._exit(0 if len(table) == 10 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_what_cannot_be_prepared_says_why(tmp_path: Path, shards: Path) -> None:
    with pytest.raises(DatasetError, match="expected a folder"):
        add_media_metadata(tmp_path / "absent", media_filter=BY_EXTENSION)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="not one medium was found by extension"):
        add_media_metadata(tmp_path / "empty", media_filter=BY_EXTENSION, num_workers=0)
    (shards / ".nv-meta/index.sqlite").unlink()
    with pytest.raises(DatasetError, match="without --no-sqlite"):
        add_media_metadata(shards, media_filter=BY_EXTENSION)
    with pytest.raises(DatasetError, match="prepare-media"):
        get_media_metadata(shards, "0/a.jpg")
    with pytest.raises(ConfigError, match="exactly one"):
        MediaFilterConfig.parse("*.jpg", header=True, extension=False)
    with pytest.raises(ConfigError, match="a pattern is empty"):
        MediaFilterConfig.parse("*.jpg,,", header=False, extension=False)


def test_a_damaged_database_is_a_storage_error(shards: Path) -> None:
    add_media_metadata(shards, media_filter=BY_EXTENSION, num_workers=0)
    table = MediaMetadataTable(shards)
    (shards / ".nv-meta/index.sqlite").write_bytes(b"no database" * 1_000)
    with pytest.raises(StorageError, match="prepare-media"):
        table["0/a.jpg"]


def test_records_are_kept_as_compact_json() -> None:
    record = AVMetadata(video_duration=1.5, video_num_frames=3)
    assert serialize_media_metadata(record) == (MediaMetadataType.AV, '{"video_duration":1.5,"video_num_frames":3}')
    assert deserialize_media_metadata("av", '{"video_duration":1.5,"video_num_frames":3}') == record
    for kind, text in (("video", "{}"), ("image", "{}"), ("av", "{"), ("av", '{"pages":3}')):
        with pytest.raises(DatasetError, match="Known kinds are av, image"):
            deserialize_media_metadata(kind, text)


def test_commands(shards: Path) -> None:
    runner = CliRunner()
    told = runner.invoke(
        commands, ["prepare-media", str(shards), "--media-metadata-by-extension", "--num-workers", "0"]
    )
    assert told.exit_code == 0, told.output
    assert "Found 10 media in 2 shards." in told.output
    assert "2 not-an-image" in told.output
    assert "Metadata of 10 media" in told.output
    told = runner.invoke(commands, ["prepare-media", str(shards), "--media-metadata-by-header", "--json"])
    assert json.loads(told.output)["media_indexed"] == 12
    assert runner.invoke(commands, ["prepare-media", str(shards)]).exit_code == 2
    options = ["--non-interactive", "--split-ratio", "1,0,0", "--force-overwrite", "--num-workers", "0"]
    told = runner.invoke(commands, ["prepare", str(shards), *options, "--media-metadata-by-glob", "*.png"])
    assert told.exit_code == 0, told.output
    assert "media" in told.output
    told = runner.invoke(
        commands, ["prepare", str(shards), *options, "--media-metadata-by-glob", "*.png", "--no-sqlite"]
    )
    assert told.exit_code == 2


def test_names_at_the_top() -> None:
    assert omniloom.MediaMetadataTable is MediaMetadataTable
    assert omniloom.get_media_metadata is get_media_metadata
