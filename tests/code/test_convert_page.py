"""docs/convert.md lists every reason that a conversion gives, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [*(ROOT / "src/omniloom/data/convert").glob("*.py"), ROOT / "src/omniloom/data/media/json_part.py"]


def test_the_page_lists_the_reasons() -> None:
    page = (ROOT / "docs/convert.md").read_text(encoding="utf-8")
    table = page.split("| reason |", 1)[1].split("\n\n", 1)[0]
    listed = {word for row in table.splitlines()[2:] for word in re.findall(r"`([a-z-]+)`", row.split("|")[1])}
    code = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    lost = {word for word in listed if f'"{word}"' not in code}
    assert not lost, f"not in the code: {lost}"
    reasons = set(re.findall(r'reason="([a-z-]+)"', code)) - {"empty-member"}
    assert reasons <= listed, f"not on the page: {reasons - listed}"
