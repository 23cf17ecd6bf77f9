"""Opens the index of a data set and draws from it: `python store_scale_open.py ROOT`; prints JSON."""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from pathlib import Path

from omniloom.data.index.dataset import open_dataset
from omniloom.data.index.tar_rows import TarRows
from omniloom.data.plan.lane import Lane
from omniloom.data.plan.order import Shuffle
from omniloom.data.plan.plan import Leaf, Plan

DRAWS = 20_000


def resident_bytes() -> int:
    """Memory of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


root = sys.argv[1]
before = resident_bytes()
begin = time.perf_counter()
index = open_dataset(root, check_files=False)
rows = TarRows(index, split_config="split.yaml")
opened = time.perf_counter()
plan = Plan((Leaf("all", len(rows)),), shuffle=Shuffle(), seed=0)
stream = plan.open(Lane(5, 12_288))
first = next(stream)
planned = time.perf_counter()
for _ in range(DRAWS):
    next(stream)
drawn = time.perf_counter()
after = resident_bytes()
print(
    json.dumps(
        {
            "rows": len(rows),
            "shards": len(index.shards),
            "open_seconds": opened - begin,
            "plan_seconds": planned - opened,
            "draw_seconds": (drawn - planned) / DRAWS,
            "memory_bytes": after - before,
            "pickled_bytes": len(pickle.dumps(rows)),
        }
    )
)
