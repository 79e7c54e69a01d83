"""The first step of every process and command."""

import ctypes
import resource
import sys
from typing import Final

from forwarder.observability.logging import configure_logging
from forwarder.settings import Settings, read_settings

_PR_SET_DUMPABLE: Final = 4


def settings_and_logging(level: str | None = None) -> Settings:
    """The settings from the environment. Configures logging, at `level` rather than at the configured one; and disables core dumps
    of this process, which could hold cards, whatever the system's setting, and on Linux also reading its memory from other
    processes of the same user (`PR_SET_DUMPABLE`). Children decide for themselves."""
    settings = read_settings()
    environment = settings.environment
    configure_logging(level or environment.log_level, environment.log_format, environment.log_usual_share)
    if not environment.core_dumps:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    return settings
