"""Finds the separate distribution forwarder-pms-kit, if it is installed; no other module looks for it."""

from importlib.util import find_spec
from typing import Any

from forwarder import __version__
from forwarder.process.loading import load

HOW_TO_INSTALL = f"pip install forwarder-pms-kit=={__version__}"


def of_kit(name: str) -> Any | None:
    """The object in the kit that `name` (as for `load`) refers to; None if the kit is not installed."""
    if find_spec("forwarder_pms_kit") is None:
        return None
    return load(f"forwarder_pms_kit.{name}")
