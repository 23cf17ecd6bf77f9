"""Time to find the partners of a join through omniloom."""

import shutil
import time

from meter import arguments, report

from omniloom import prepare_metadataset

options = arguments("data")

shutil.rmtree(f"{options.data}.cache", ignore_errors=True)
started = time.perf_counter()
prepare_metadataset(options.data)
report(seconds=time.perf_counter() - started)
