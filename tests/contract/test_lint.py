"""What lint finds in a data set, and where it says it is."""

from __future__ import annotations

import io
import json
import os
import struct
import tarfile
from pathlib import Path

import pytest
from PIL import Image

from omniloom.data.index.lint import LintReport, lint_dataset
from omniloom.data.index.lint_shard import energon_offsets
from omniloom.data.index.prepare import prepare_dataset
from omniloom.data.index.yaml_dialect import dump_yaml
from omniloom.errors import DatasetError


def _image(form: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.effect_noise((64, 64), 50).convert("RGB").save(stream, form)
    return stream.getvalue()


PNG = _image()
JPEG = _image("JPEG")


def _tar(path: Path, *members: tuple[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def _prepared(root: Path, field_map: dict[str, str] | None = None) -> Path:
    prepare_dataset(root, num_workers=1)
    sample_type = {"__module__": "megatron.energon", "__class__": "CaptioningSample"}
    config = {"sample_type": sample_type, "field_map": field_map or {"image": "png,jpg", "caption": "txt"}}
    (root / ".nv-meta/dataset.yaml").write_text(dump_yaml(config))
    return root


def _errors(report: LintReport) -> list[tuple[str, str, str, str]]:
    return [(f.shard, f.key, f.part, f.reason) for f in report.findings if f.level == "error"]


def _warnings(report: LintReport) -> dict[str, int]:
    return {reason: count for (level, reason), count in report.counts.items() if level == "warning"}


def test_a_sound_set(tmp_path: Path) -> None:
    parts = {"png": PNG, "txt": b"a text", "json": b'{"a": [1]}', "cls": b"7", "bin": b"\xff"}
    for shard in ("a.tar", "b.tar"):
        _tar(tmp_path / shard, *((f"{shard[0]}{n}.{part}", data) for n in range(3) for part, data in parts.items()))
    report = lint_dataset(_prepared(tmp_path))
    assert (report.samples, report.shards, report.bad_samples, report.errors) == (6, 2, 0, 0)
    assert report.findings == []


@pytest.mark.parametrize(
    ("part", "data", "reason"),
    [
        ("png", PNG[: len(PNG) // 2], "truncated-image"),
        ("jpg", JPEG[: len(JPEG) // 2], "truncated-image"),
        ("png", b"<html>", "html"),
        ("png", b"", "empty-member"),
        ("json", b'{"a": NaN}', "number"),
        ("json", b'{"a": 1, "a": 2}', "duplicate-key"),
        ("json", b"{", "syntax"),
        ("json", b"", "empty-member"),
        ("txt", b"caf\xe9", "encoding"),
        ("cls", b"seven", "not-a-number"),
    ],
)
def test_one_bad_part(part: str, data: bytes, reason: str, tmp_path: Path) -> None:
    others = [("png", PNG), ("txt", b"fine"), ("json", b"{}"), ("cls", b"1")]
    image = "jpg" if part == "jpg" else "png"
    parts = {**{name: value for name, value in others if name != "png"}, image: JPEG if image == "jpg" else PNG}
    shard = _tar(
        tmp_path / "s.tar",
        *((f"good.{name}", value) for name, value in parts.items()),
        *((f"bad.{name}", value) for name, value in {**parts, part: data}.items()),
    )
    report = lint_dataset(_prepared(tmp_path))
    assert _errors(report) == [("s.tar", "bad", part, reason)]
    assert (report.samples, report.bad_samples) == (2, 1)
    finding = next(f for f in report.findings if f.level == "error")
    with tarfile.open(shard) as tar:
        member = tar.getmember(f"bad.{part}")
        assert (finding.start, finding.stop) == (member.offset_data, member.offset_data + member.size)


def test_an_empty_text_is_only_a_warning(tmp_path: Path) -> None:  # C17
    _tar(tmp_path / "s.tar", ("a.jpg", b""), ("a.txt", b"good"), ("b.jpg", JPEG), ("b.txt", b""))
    report = lint_dataset(_prepared(tmp_path))
    assert _errors(report) == [("s.tar", "a", "jpg", "empty-member")]
    assert _warnings(report) == {"empty-member": 1}


def test_fields_that_cannot_be_filled(tmp_path: Path) -> None:
    _tar(tmp_path / "s.tar", ("a.png", PNG), ("a.json", b'[{"value": "q"}]'), ("b.png", PNG), ("b.json", b"[]"))
    report = lint_dataset(_prepared(tmp_path, {"image": "png", "caption": "json[0][value]"}))
    assert _errors(report) == [("s.tar", "b", "", "field-map")]
    message = report.findings[0].message
    assert message == "the field 'caption' cannot be filled: json[0]" + "[value]: no element 0 in a list of 0"


def test_content_that_is_not_what_the_name_says(tmp_path: Path) -> None:
    _tar(tmp_path / "s.tar", ("a.jpg", PNG), ("a.txt", b"x"), ("a.pkl", b"x"))
    report = lint_dataset(_prepared(tmp_path))
    assert report.errors == 0
    assert _warnings(report) == {"content-type": 1, "pickle": 1}


def test_headers_alone(tmp_path: Path) -> None:
    _tar(tmp_path / "s.tar", ("a.png", PNG[:-40]), ("a.txt", b"x"), ("b.png", b"no image"), ("b.txt", b"x"))
    root = _prepared(tmp_path)
    assert len(_errors(lint_dataset(root))) == 2
    assert _errors(lint_dataset(root, decode=False)) == [("s.tar", "b", "png", "not-an-image")]


def test_warnings_on_names(tmp_path: Path) -> None:  # C01, C03, C15
    _tar(tmp_path / "dots.tar", ("22.05.png", PNG), ("22.06.png", PNG), ("22.txt", b"x"))
    _tar(tmp_path / "mac.tar", ("d/._a.png", b"junk"), ("d/a.png", PNG), ("d/a.txt", b"x"), (".DS_Store", b"x"))
    _tar(tmp_path / "mixed.tar", ("k.png", PNG), ("l.png", PNG), ("k.txt", b"x"), ("l.txt", b"x"))
    report = lint_dataset(_prepared(tmp_path, {"image": "png,05.png", "caption": "txt"}))
    assert report.errors == 0
    assert _warnings(report) == {"dotted-key": 2, "apple-double": 1, "ds-store": 1, "interleaved": 2}
    dotted = next(f for f in report.findings if f.reason == "dotted-key")
    assert (dotted.shard, dotted.message) == (
        "dots.tar",
        "2/3 names have more than one dot ('22.05.png' and '22.06.png'); the key ends at the first",
    )


def test_keys_in_two_shards(tmp_path: Path) -> None:  # C14 c
    for name in ("x.tar", "y.tar"):
        _tar(tmp_path / name, ("a.png", PNG), ("a.txt", b"x"))
    report = lint_dataset(_prepared(tmp_path))
    assert (report.errors, _warnings(report)) == (0, {"duplicate-key": 1})
    assert report.findings[-1].message.startswith("the key is in x.tar (row 0) and y.tar (row 0)")


def test_shards_that_changed_since_they_were_indexed(tmp_path: Path) -> None:  # C18
    for name in ("size.tar", "order.tar", "same.tar"):
        _tar(tmp_path / name, (f"{name[:-4]}-a.txt", b"1" * 600), (f"{name[:-4]}-b.txt", b"2" * 600))
    root = _prepared(tmp_path, {"caption": "txt"})
    _tar(tmp_path / "size.tar", ("size-a.txt", b"1" * 9_600), ("size-b.txt", b"2" * 9_600))
    _tar(tmp_path / "order.tar", ("order-b.txt", b"2" * 600), ("order-a.txt", b"1" * 600))
    report = lint_dataset(root)
    assert _errors(report) == [("order.tar", "", "", "index-stale"), ("size.tar", "", "", "index-stale")]
    told = {f.shard: f.message for f in report.findings}
    assert "bytes, but had 10,240 when it was indexed" in told["size.tar"]
    assert "headers are not those that were indexed" in told["order.tar"]


def test_damaged_and_missing_shards(tmp_path: Path) -> None:
    for name in ("cut.tar", "gone.tar", "noidx.tar", "fine.tar", "double.tar"):
        _tar(tmp_path / name, (f"{name[:-4]}-a.txt", b"1" * 600), (f"{name[:-4]}-b.txt", b"2" * 600))
    root = _prepared(tmp_path, {"caption": "txt"})
    os.truncate(root / "cut.tar", 1_000)
    (root / "gone.tar").unlink()
    (root / "noidx.tar.idx").unlink()
    _tar(root / "double.tar", ("a.txt", b"1"), ("a.txt", b"2"), ("b.txt", b"\xff"))
    report = lint_dataset(root)
    assert _errors(report) == [
        ("cut.tar", "", "", "truncated"),
        ("double.tar", "", "", "duplicate"),
        ("double.tar", "", "", "index-stale"),
        ("double.tar", "b", "txt", "encoding"),
        ("gone.tar", "", "", "missing-shard"),
        ("noidx.tar", "", "", "index-stale"),
    ]
    assert report.findings[0].start == 0  # the member that is cut


def test_a_set_that_energon_prepared(tmp_path: Path) -> None:
    """Its junk rows and torn samples are rows like others to Energon; its numbers are kept, and told."""
    shard = _tar(
        tmp_path / "s.tar", ("d/._a.txt", b"j"), ("d/a.txt", b"1"), ("b.png", PNG), ("c.png", PNG), ("b.txt", b"2")
    )
    # Energon's rule by hand: one row per run of neighbours with the same key, ._a.txt being part "_a.txt" of "d/".
    with tarfile.open(shard) as tar:
        offsets = [*(member.offset for member in tar.getmembers()), tar.offset]
    assert energon_offsets(str(shard), shard="s.tar").tolist() == offsets
    (tmp_path / "s.tar.idx").write_bytes(struct.pack(f"<{len(offsets)}Q", *offsets))
    (tmp_path / ".nv-meta").mkdir()
    (tmp_path / ".nv-meta/.info.json").write_text(json.dumps({"shard_counts": {"s.tar": 5}}))
    (tmp_path / ".nv-meta/split.yaml").write_text("split_parts: {train: [s.tar]}\n")
    report = lint_dataset(tmp_path)
    assert _errors(report) == [("s.tar", "", "", "interleaved")]
    assert _warnings(report) == {"apple-double": 1, "no-dataset-yaml": 1}


def test_split_parts_and_excluded_samples(tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        _tar(tmp_path / name, (f"{name[0]}0.txt", b"\xff"), (f"{name[0]}1.txt", b"fine"))
    prepare_dataset(tmp_path, split_ratio="1,1,0", num_workers=1)
    report = lint_dataset(tmp_path, split_parts=["val", "test", "train"])
    assert (report.samples, report.bad_samples, report.skipped_parts) == (4, 2, ["test"])
    assert _errors(lint_dataset(tmp_path, split_parts=["val"])) == [("b.tar", "b0", "txt", "encoding")]
    split = tmp_path / ".nv-meta/split.yaml"
    split.write_text(split.read_text().replace("exclude: []", "exclude: [b.tar/b0, a.tar]"))
    report = lint_dataset(tmp_path)
    assert (report.samples, report.bad_samples, report.shards) == (1, 0, 1)
    with pytest.raises(DatasetError, match="no split part 'other'"):
        lint_dataset(tmp_path, split_parts=["other"])
    with pytest.raises(DatasetError, match="every split part is empty"):
        lint_dataset(tmp_path, split_parts=["test"])


def test_processes_make_no_difference(tmp_path: Path) -> None:
    for number in range(4):
        _tar(tmp_path / f"{number}.tar", (f"{number}.png", PNG[:50]), (f"{number}.txt", b"x"))
    root = _prepared(tmp_path)
    seen = []
    one = lint_dataset(root, num_workers=1, on_shard=lambda each, total: seen.append((each.shard, total)))
    two = lint_dataset(root, num_workers=2)
    assert one == two
    assert seen == [(f"{number}.tar", 4) for number in range(4)]


def test_many_findings_are_counted_but_not_all_kept(tmp_path: Path) -> None:
    _tar(tmp_path / "s.tar", *((f"{number:04}.txt", b"\xff") for number in range(1_500)))
    report = lint_dataset(_prepared(tmp_path, {"caption": "txt"}))
    assert (report.bad_samples, report.counts["error", "encoding"], len(report.findings)) == (1_500, 1_500, 1_000)


def test_threads_within_a_shard_change_nothing(tmp_path: Path) -> None:
    members = [(f"{n:03d}.{part}", data) for n in range(40) for part, data in (("png", PNG), ("txt", b"x"))]
    members[20] = (members[20][0], PNG[:100])
    members[62] = (members[62][0], b"")
    _tar(tmp_path / "s.tar", *members)
    root = _prepared(tmp_path)
    alone, together = lint_dataset(root), lint_dataset(root, num_workers=4)
    assert alone == together
    assert alone.quarantine == ["s.tar/010", "s.tar/031"]


def test_progress_is_told_within_a_shard(tmp_path: Path) -> None:
    _tar(tmp_path / "s.tar", *((f"{n:03d}.txt", b"x") for n in range(120)))
    seen: list[tuple[int, int, int]] = []
    lint_dataset(_prepared(tmp_path), on_samples=lambda *told: seen.append(told))
    assert seen == [(50, 120, 1), (100, 120, 1)]
