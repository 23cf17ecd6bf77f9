"""Names of files and rules for names of members, as Energon's modules have them."""

from __future__ import annotations

import re

JOIN_INDEX_FILENAME = "join_index.bin"
INDEX_BATCH_SIZE = 4096
split_name_re = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")
"""Key and part of a member's name; `omniloom.data.shards.keys` does the same without an expression."""

skip_meta_re = re.compile(r"__[^/]*__($|/)")
"""What members that belong to no sample begin with."""
