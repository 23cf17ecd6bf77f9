"""Trust as Energon has it: code that a data set names is run; told once, and forbidden by ``OMNILOOM_TRUST=0``."""

from __future__ import annotations

import logging
import os

from omniloom.data.index.trusted_code import TRUST_VARIABLE

logger = logging.getLogger("omniloom")


class _Trust(int):
    """True; tells so when somebody first relies on it, which is when code of a data set is about to be imported."""

    told = False

    def __bool__(self) -> bool:
        if not _Trust.told and os.environ.get(TRUST_VARIABLE) != "0":
            _Trust.told = True
            logger.warning(
                "code that a data set names is imported and run, as Energon does; %s=0 forbids it", TRUST_VARIABLE
            )
        return True


AS_ENERGON: bool = _Trust(1)  # type: ignore[assignment]
"""What is given as ``trust=`` on behalf of users of Energon's names."""
