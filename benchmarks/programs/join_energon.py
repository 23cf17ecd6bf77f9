"""Time to find the partners of a join through Energon."""

import shutil
import time

from megatron.energon import prepare_metadataset
from megatron.energon.epathlib import EPath
from meter import arguments, report

options = arguments("data")

shutil.rmtree(f"{options.data}.cache", ignore_errors=True)
started = time.perf_counter()
prepare_metadataset(EPath(options.data))
report(seconds=time.perf_counter() - started)
