"""The same text records as JSONL, Parquet, Arrow and plain files: what the sources benchmark reads."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from data_text import text_dataset
from harness import say

ROW_GROUP = 1_000
FILES_AT_MOST = 20_000


def texts(data_dir: Path, *, records: int) -> Iterator[str]:
    """The records of the text benchmark."""
    for shard in sorted(text_dataset(data_dir, records=records).glob("*.tar")):
        with tarfile.open(shard) as tar:
            for member in tar:
                yield tar.extractfile(member).read().decode()  # type: ignore[union-attr]


def sources(data_dir: Path, *, records: int) -> dict[str, Path]:
    """A path for each kind of source, made at the first call."""
    root = data_dir / f"sources-{records}"
    found = {
        "JSONL": root / "texts.jsonl",
        "Parquet": root / "texts.parquet",
        "Arrow": root / "saved",
        "plain files": root / "files",
    }
    if (root / "done").exists():
        return found
    import pyarrow as pa  # noqa: PLC0415 - only where they are made
    import pyarrow.parquet as pq  # noqa: PLC0415
    from datasets import Dataset  # noqa: PLC0415

    shutil.rmtree(root, ignore_errors=True)
    (root / "files").mkdir(parents=True)
    say(f"making {records:,} records of each kind of source")
    lines = list(texts(data_dir, records=records))
    found["JSONL"].write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    pq.write_table(pa.table({"text": lines}), found["Parquet"], row_group_size=ROW_GROUP)
    Dataset.from_dict({"text": lines}).save_to_disk(str(found["Arrow"]))
    for number, line in enumerate(lines[:FILES_AT_MOST]):
        (root / "files" / f"{number:06d}.txt").write_text(line)
    prepare = [sys.executable, "-m", "omniloom", "prepare", str(found["JSONL"]), "--no-progress"]
    subprocess.run(prepare, check=True, stdout=subprocess.DEVNULL)
    (root / "done").touch()
    return found
