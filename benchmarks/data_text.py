"""Makes the text data set: records of about 400 bytes in plain tars, the same bytes on every machine."""

from __future__ import annotations

import io
import json
import random
import shutil
import tarfile
from pathlib import Path

RECORDS_PER_SHARD = 10_000
_SYLLABLES = ("an", "be", "co", "du", "el", "fi", "gra", "ho", "in", "ja", "ki", "lo", "mor", "ne", "ol", "pa", "qui")
_ENDINGS = ("n", "r", "st", "th", "ed", "ing", "ly", "s", "", "")


def text_dataset(data_dir: Path, *, records: int) -> Path:
    """Folder with ``records`` one-part samples (``<key>.txt``), made at the first call; without an index."""
    folder = data_dir / f"text-{records}"
    done = folder.with_suffix(".json")
    if done.exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    draw = random.Random(20_240_607)
    words = sorted({_word(draw) for _ in range(4_000)})
    total_bytes = 0
    for first in range(0, records, RECORDS_PER_SHARD):
        with tarfile.open(
            folder / f"shard-{first // RECORDS_PER_SHARD:06d}.tar", "w", format=tarfile.USTAR_FORMAT
        ) as tar:
            for number in range(first, min(first + RECORDS_PER_SHARD, records)):
                payload = _record(draw, words).encode()
                member = tarfile.TarInfo(f"{number:09d}.txt")
                member.size = len(payload)
                total_bytes += len(payload)
                tar.addfile(member, io.BytesIO(payload))
    done.write_text(json.dumps({"samples": records, "mean_payload_bytes": round(total_bytes / records, 1)}))
    return folder


def _word(draw: random.Random) -> str:
    return "".join(draw.choices(_SYLLABLES, k=draw.randint(1, 3))) + draw.choice(_ENDINGS)


def _record(draw: random.Random, words: list[str]) -> str:
    return " ".join(draw.choices(words, k=draw.randint(35, 68)))
