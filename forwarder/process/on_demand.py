"""What is imported only where it is used: chosen by its name, as `module:attribute`. A command, a stage and a kind of PMS are.

A process that serves one stage then holds nothing of the others, and a command starts in the time of what it does. Where a name
leads nowhere is found by the tests that load every one of a table.
"""

import gc
from functools import cache
from pkgutil import resolve_name
from typing import Any


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
