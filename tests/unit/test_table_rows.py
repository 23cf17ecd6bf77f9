"""Parquet and Arrow: rows equal those that pyarrow and Hugging Face `datasets` read, in any order, at bounded cost."""

from __future__ import annotations

import decimal
import errno
import io
import json
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.shards.rows import RowFile
from omniloom.data.tables import parquet
from omniloom.data.tables.arrow import open_arrow_rows
from omniloom.data.tables.columns import column_values
from omniloom.data.tables.parquet import open_parquet_rows
from omniloom.data.tables.spool import Spool
from omniloom.data.tables.table_rows import TableRows
from omniloom.errors import ShardError, StorageError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

RAW = SampleDecoder(image_decode="raw")


def png(number: int, *, size: int = 2) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((size, size + 1, 3), number % 256, np.uint8)).save(file, "PNG")
    return file.getvalue()


def row_of(number: int) -> dict[str, Any]:
    """A row with everything that a column can be."""
    return {
        "image": {"bytes": png(number), "path": None},
        "images": [{"bytes": png(number + at), "path": f"{at}.PNG"} for at in range(number % 3)],
        "caption": f"é {number}",
        "label": number,
        "score": number / 7,
        "turns": [{"from": "human", "value": f"q{number}"}, {"from": "gpt", "value": None}],
        "raw": bytes([number, 0]),
        "mixed": {
            "note": "n",
            "parts": [{"data": {"bytes": png(9), "path": "x.png"}, "blob": b"\0\1"}],
        },
        "nothing": None if number % 2 else "some",
    }


ROWS = [row_of(number) for number in range(20)]
VALUES = [
    {
        **row,
        "image": row["image"]["bytes"],
        "images": [one["bytes"] for one in row["images"]],
        "mixed": {"note": "n", "parts": [{"data": png(9), "blob": b"\0\1"}]},
    }
    for row in ROWS
]


def saved_parquet(folder: Path, *, group: int = 6, rows: list[dict[str, Any]] = ROWS) -> TableRows:
    pq.write_table(pa.Table.from_pylist(rows), folder / "x.parquet", row_group_size=group)
    return open_parquet_rows([RowFile("x.parquet", str(folder / "x.parquet"), 0)], root=str(folder))


def saved_arrow(folder: Path) -> TableRows:
    with (
        pa.OSFile(str(folder / "x.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, pa.Table.from_pylist(ROWS).schema) as writer,
    ):
        for batch in pa.Table.from_pylist(ROWS).to_batches(max_chunksize=7):
            writer.write_batch(batch)
    return open_arrow_rows([RowFile("x.arrow", str(folder / "x.arrow"), 0)], root=str(folder))


@pytest.mark.parametrize("save", [saved_parquet, saved_arrow])
def test_rows_are_those_that_were_written(save: Any, tmp_path: Path) -> None:
    rows = pickle.loads(pickle.dumps(save(tmp_path)))
    order = list(range(20))
    random.Random(1).shuffle(order)
    for row in order:
        raw = rows.read(row)
        assert raw.name == str(row)
        values = column_values(raw.parts, rows.kinds, RAW)
        assert values == {name: value for name, value in VALUES[row].items() if value is not None}
        assert all(isinstance(data, bytes) for data in raw.parts.values())


def test_images_are_named_for_their_path_or_their_content(tmp_path: Path) -> None:
    parts = saved_parquet(tmp_path).read(2).parts
    assert [name for name in parts if "image" in name] == ["image.png", "images", "images/0.png", "images/1.png"]


def test_media_are_decoded_wherever_they_stand(tmp_path: Path) -> None:
    rows = saved_parquet(tmp_path)
    values = column_values(rows.read(2).parts, rows.kinds, SampleDecoder(image_decode="rgb8"))
    assert values["image"].shape == (2, 3, 3)
    assert (values["image"] == 2).all()
    assert [int(one[0, 0, 0]) for one in values["images"]] == [2, 3]
    assert values["mixed"]["parts"][0]["data"].shape == (2, 3, 3)
    assert values["raw"] == b"\2\0"


def test_only_wanted_columns_are_read(tmp_path: Path) -> None:
    saved_parquet(tmp_path)
    file = RowFile("x.parquet", str(tmp_path / "x.parquet"), 0)
    rows = open_parquet_rows([file], root=str(tmp_path), wanted=frozenset({"caption"}))
    assert rows.read(3).parts == {"caption": "é 3".encode()}


def test_dates_and_decimals_are_texts(tmp_path: Path) -> None:
    table = pa.table(
        {"when": pa.array([0], pa.timestamp("s")), "price": pa.array([decimal.Decimal("1.00")], pa.decimal128(5, 2))}
    )
    pq.write_table(table, tmp_path / "x.parquet")
    rows = open_parquet_rows([RowFile("x.parquet", str(tmp_path / "x.parquet"), 0)], root=str(tmp_path))
    assert column_values(rows.read(0).parts, rows.kinds, None) == {"when": "1970-01-01 00:00:00", "price": "1.00"}


def test_a_column_of_keys_is_that_and_base_fields_stay_what_they_are(tmp_path: Path) -> None:
    rows = [{"__key__": f"a/{n}", "__url__": "x.tar", "__sources__": "nonsense", "txt": f"t{n}"} for n in range(2)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    file = RowFile("x.parquet", str(tmp_path / "x.parquet"), 0)
    table = open_parquet_rows([file], root=str(tmp_path))
    assert (table.read(1).name, table.read(1).parts) == ("a/1", {"__url__": b"x.tar", "txt": b"t1"})
    narrow = open_parquet_rows([file], root=str(tmp_path), wanted=frozenset({"txt"}))
    assert (narrow.read(0).name, narrow.read(0).parts, narrow.kinds) == ("a/0", {"txt": b"t0"}, {"txt": "text"})


def test_large_whole_numbers_are_exact(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [9007199254740993]}), tmp_path / "x.parquet")
    rows = open_parquet_rows([RowFile("x.parquet", str(tmp_path / "x.parquet"), 0)], root=str(tmp_path))
    assert column_values(rows.read(0).parts, rows.kinds, None) == {"id": 9007199254740993}


def test_files_that_rows_name_are_read_within_the_folder_only(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/a.png").write_bytes(png(1))
    (tmp_path / "secret.png").write_bytes(png(2))
    names = ["a.png", "../secret.png", str(tmp_path / "secret.png")]
    rows = saved_parquet(tmp_path / "set", rows=[{"image": {"bytes": None, "path": name}} for name in names])
    # pyarrow infers null for a field that holds nothing else; Hugging Face declares it binary.
    table = pq.read_table(tmp_path / "set/x.parquet").cast(
        pa.schema({"image": pa.struct({"bytes": pa.binary(), "path": pa.string()})})
    )
    pq.write_table(table, tmp_path / "set/x.parquet")
    rows = open_parquet_rows([RowFile("x.parquet", str(tmp_path / "set/x.parquet"), 0)], root=str(tmp_path / "set"))
    assert rows.read(0).parts == {"image.png": png(1)}
    for row in (1, 2):
        with pytest.raises(StorageError, match="out of the folder"):
            rows.read(row)


def test_a_row_group_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = saved_parquet(tmp_path)
    spool = Spool(capacity_bytes=1 << 30, folder=str(tmp_path))
    monkeypatch.setattr(parquet, "process_spool", lambda: spool)
    decoded: list[int] = []
    made = parquet.ParquetTable._group
    monkeypatch.setattr(parquet.ParquetTable, "_group", lambda self, group: decoded.append(group) or made(self, group))
    order = list(range(20)) * 3
    random.Random(2).shuffle(order)
    for row in order:
        rows.read(row)
    assert sorted(decoded) == [0, 1, 2, 3]
    assert list(tmp_path.iterdir()) == [tmp_path / "x.parquet"]  # the spool's files have no names


def test_the_spool_keeps_within_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = saved_parquet(tmp_path, group=5)
    spool = Spool(capacity_bytes=1, folder=str(tmp_path))
    monkeypatch.setattr(parquet, "process_spool", lambda: spool)
    for row in (0, 19, 0, 7):
        assert rows.read(row).name == str(row)
        assert len(spool) == 1


def test_a_spool_that_is_too_small_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = saved_parquet(tmp_path, group=5)
    spool = Spool(capacity_bytes=1, folder=str(tmp_path))
    monkeypatch.setattr(parquet, "process_spool", lambda: spool)
    for _ in range(60):
        for row in (0, 5, 10, 15):
            rows.read(row)
    assert (spool.given_up, spool.given_up_early) == (239, 239)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("200 of 200 row groups were given up before half of their rows were read")
    assert "OMNILOOM_SPOOL_BYTES" in message


def test_a_spool_that_is_large_enough_says_nothing_in_any_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = saved_parquet(tmp_path, group=5)
    spool = Spool(capacity_bytes=1, folder=str(tmp_path))
    monkeypatch.setattr(parquet, "process_spool", lambda: spool)
    for _ in range(60):
        for row in range(20):
            rows.read(row)
    assert (spool.given_up, spool.given_up_early, caplog.records) == (239, 0, [])


def test_a_full_disk_costs_the_other_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = saved_parquet(tmp_path)
    spool = Spool(capacity_bytes=1 << 30, folder=str(tmp_path))
    monkeypatch.setattr(parquet, "process_spool", lambda: spool)
    assert rows.read(0).name == "0"
    write = Spool._spooled

    def full_while_others_are_kept(self: Spool, *block: Any) -> Any:
        if len(self):
            error = StorageError("no space")
            error.errno = errno.ENOSPC
            raise error
        return write(self, *block)

    monkeypatch.setattr(Spool, "_spooled", full_while_others_are_kept)
    assert rows.read(19).name == "19"
    assert len(spool) == 1


def test_origin_tells_the_bytes_of_the_row_group(tmp_path: Path) -> None:
    rows = saved_parquet(tmp_path)
    metadata = pq.ParquetFile(tmp_path / "x.parquet").metadata
    chunks = [metadata.row_group(1).column(number) for number in range(metadata.num_columns)]
    shard, span = rows.origin(7)
    assert shard == "x.parquet"
    assert span is not None
    assert span[1] - span[0] == sum(chunk.total_compressed_size for chunk in chunks)


def test_files_of_another_form_are_refused(tmp_path: Path) -> None:
    files = []
    for number, column in enumerate(("a", "b")):
        pq.write_table(pa.table({column: ["x"]}), tmp_path / f"{number}.parquet")
        files.append(RowFile(f"{number}.parquet", str(tmp_path / f"{number}.parquet"), 0))
    with pytest.raises(ShardError, match="column 'a' is not there here and text in"):
        open_parquet_rows(files, root=str(tmp_path))


@pytest.mark.parametrize(("name", "open_rows"), [("x.parquet", open_parquet_rows), ("x.arrow", open_arrow_rows)])
def test_damaged_files_are_refused(name: str, open_rows: Any, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"PAR1 this is no table")
    with pytest.raises(ShardError, match="cannot be opened as"):
        open_rows([RowFile(name, str(tmp_path / name), 0)], root=str(tmp_path))


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    rows = pickle.loads(pickle.dumps(saved_parquet(tmp_path)))
    saved_parquet(tmp_path, rows=ROWS[:3])
    with pytest.raises(ShardError, match="has 3 rows now and had 20"):
        rows.read(0)


def test_a_data_set_that_hugging_face_saved_reads_as_it_reads_it(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"image": datasets.Image(), "images": [datasets.Image()], "label": datasets.ClassLabel(names=["cat", "dog"]),
         "conversations": [{"from": datasets.Value("string"), "value": datasets.Value("string")}]}
    )  # fmt: skip
    made = [
        {"image": {"bytes": png(n), "path": None}, "images": [{"bytes": png(n + 1), "path": None}] * (n % 3),
         "label": n % 2, "conversations": [{"from": "human", "value": f"é{n}"}]}
        for n in range(11)
    ]  # fmt: skip
    theirs = datasets.Dataset.from_list(made, features=features)
    theirs.save_to_disk(tmp_path / "saved", num_shards=2)
    theirs.to_parquet(tmp_path / "x.parquet")
    names = sorted(path.name for path in (tmp_path / "saved").glob("*.arrow"))
    arrow = open_arrow_rows([RowFile(n, str(tmp_path / "saved" / n), 0) for n in names], root=str(tmp_path / "saved"))
    table = open_parquet_rows([RowFile("x.parquet", str(tmp_path / "x.parquet"), 0)], root=str(tmp_path))
    assert len(arrow) == len(table) == 11
    loaded = datasets.load_from_disk(tmp_path / "saved")
    for row in range(11):
        ours = column_values(arrow.read(row).parts, arrow.kinds, SampleDecoder(image_decode="rgb8"))
        expected = loaded[row]
        assert (ours["image"] == np.asarray(expected["image"])).all()
        assert len(ours["images"]) == len(expected["images"])
        assert ours["label"] == expected["label"]
        assert ours["conversations"] == expected["conversations"]
        assert table.read(row).parts == arrow.read(row).parts
    assert json.loads(arrow.read(0).parts["images"]) == []
