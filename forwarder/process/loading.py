"""Process start-up and memory: imports on demand, and the cyclic garbage collector. A process of one stage loads nothing of the
others, and a command starts quickly, because a module that is rarely needed is named as `module:attribute` and imported on use.
Tests load every name of each such table."""

import gc
from functools import cache
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any


@cache
def load(name: str) -> Any:
    """The object that `name` refers to; imports its module if necessary. Raises the module's errors."""
    collecting = gc.isenabled()
    # Modules are never freed: collecting garbage again and again during an import takes a fifth of its time.
    gc.disable()
    try:
        return resolve_name(name)
    finally:
        if collecting:
            gc.enable()


def of_kit(name: str) -> Any | None:
    """As `load`, from the separate distribution forwarder-pms-kit; None if that is not installed."""
    return None if find_spec("forwarder_pms_kit") is None else load(f"forwarder_pms_kit.{name}")


def collect_rarely() -> None:
    """Call after the imports, and again after further ones. Reference counting still frees objects at once; cycles are collected
    only after some 50,000 new objects, tens of MB at most, where Python's default is 700. A worker with thousands of reservations
    in memory spent a fifth of its time on collections; still a tenth with one for every 10,000 objects."""
    gc.freeze()  # modules and classes are never freed: exclude them from collection
    gc.set_threshold(50_000, 4, 20)  # new objects; rounds of the young, and of the middle generation
