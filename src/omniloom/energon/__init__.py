"""Energon's names over omniloom's engine: change ``megatron.energon`` to ``omniloom.energon``, and all works.

`install` lets code that says ``megatron.energon`` have it, too. docs/energon.md is the guide.
"""

from __future__ import annotations

import sys

from omniloom.energon import finder


def install() -> None:
    """Let ``import megatron.energon`` give these names, in this process. megatron-core may stand beside it.

    Raises:
        ConfigError: the real Energon is imported already.
    """
    finder.alias()


finder.begin(sys.modules[__name__])
