"""Keeps this process's memory private. A process that has cards in memory leaves none of it on disk when it crashes."""

import ctypes
import resource
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4


def forbid_core_dumps() -> None:
    """Disables core dumps of this process, whatever the system's setting, and on Linux also reading its memory from other
    processes of the same user (`PR_SET_DUMPABLE`). Children decide for themselves."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
