"""What the figures were measured on and with."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
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
    """Processor, memory, system, date, and how busy the machine was before the first benchmark."""
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "load_average_before": round(os.getloadavg()[0], 2),
    }


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
