"""What the figures were measured on and with."""

from __future__ import annotations

import datetime
import json
import os
import platform
import resource
import subprocess
import time
from pathlib import Path

PACKAGES = (
    "omniloom",
    "megatron-energon",
    "webdataset",
    "torch",
    "numpy",
    "pillow",
    "simplejpeg",
    "multi-storage-client",
)
_ASK = (
    "import importlib.metadata as m, json, platform\n"
    "found = {'python': platform.python_version()}\n"
    "for name in %r:\n"
    "    try: found[name] = m.version(name)\n"
    "    except m.PackageNotFoundError: pass\n"
    "print(json.dumps(found))"
)


def versions(python: Path) -> dict[str, str]:
    """Versions of the interpreter and of the packages that matter here."""
    output = subprocess.run([str(python), "-c", _ASK % (PACKAGES,)], capture_output=True, text=True, check=True).stdout
    found: dict[str, str] = json.loads(output)
    return found


def describe() -> dict[str, object]:
    """Processor, memory and system."""
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
    }


class Circumstances:
    """When something was measured, and how much of the processors other programs took meanwhile."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._busy_before, self._own_before = _busy_seconds(), _own_seconds()

    def describe(self) -> dict[str, object]:
        """The date, and the share of all processors' time since the beginning that was others' work."""
        cores = os.cpu_count() or 1
        elapsed = (time.perf_counter() - self._started) * cores
        others = (_busy_seconds() - self._busy_before) - (_own_seconds() - self._own_before)
        return {
            "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
            "others_share": round(max(0.0, others) / elapsed, 3),
        }


def _busy_seconds() -> float:
    """Seconds that all processors have worked since the start of the machine."""
    user, nice, system, _idle, _iowait, irq, softirq = map(int, Path("/proc/stat").read_text().split(maxsplit=8)[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Seconds that this process and the programs that it waited for have worked."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
