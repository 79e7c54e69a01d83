"""What a process loads and how it looks after its memory: imports on demand, and the cyclic garbage collector.

A process that serves one stage holds nothing of the others, and a command starts in the time of what it does: what is imported only
where it is used is chosen by its name, as `module:attribute`. Tests load every name of each such table.
"""

import gc
from functools import cache
from pkgutil import resolve_name
from typing import Any, Final

_MAX_YOUNG: Final = 50_000
_YOUNG_PER_MIDDLE: Final = 4
_MIDDLE_PER_OLD: Final = 20


@cache
def load(name: str) -> Any:
    """What `name` names; imported, where it was not yet. Raises what its module raises."""
    collecting = gc.isenabled()
    # Modules are kept: to look through them for garbage, again and again as they come, is a fifth of what importing them costs.
    gc.disable()
    try:
        return resolve_name(name)
    finally:
        if collecting:
            gc.enable()


def collect_rarely() -> None:
    """Call when everything is imported, and again where more was since. What is no longer referred to is freed at once all the
    same; cycles are looked for after some 50,000 new objects, tens of MB at most, where Python's own measure is 700.

    A worker with thousands of reservations in memory spent a fifth of its time looking through them again and again; a tenth still
    with looks at every 10,000.
    """
    gc.freeze()  # modules and classes stay: nobody need look through them
    gc.set_threshold(_MAX_YOUNG, _YOUNG_PER_MIDDLE, _MIDDLE_PER_OLD)
