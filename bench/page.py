"""The part of `docs/explanation/performance.md` that a run writes. What people write around it stays as it is."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.report import Sheet
from tools.servers.surroundings import surroundings

PAGE: Final = Path(__file__).parent.parent / "docs" / "explanation" / "performance.md"
_BEGIN: Final = "<!-- measured: begin. `make bench ARGS='--all --write'` writes what is between these two lines. -->"
_END: Final = "<!-- measured: end -->"


class NoPlace(Exception):
    """The page does not have the two lines between which a run writes."""


def machine() -> str:
    """Cores, memory, kernel, and the versions of what ran."""
    return "; ".join([_processor(), *surroundings(), _memory(), f"Linux {platform.release().split('-')[0]}"])


def write(commands: Sequence[str], ceilings: Sequence[str], sheets: Sequence[Sheet], page: Path = PAGE) -> None:
    """Put what was measured into its place. Raises `NoPlace`."""
    before, begin, rest = page.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise NoPlace(f"{page} needs these two lines: {_BEGIN} and {_END}")
    parts = [f"Measured by `{' '.join(commands)}` on: {machine()}.", *ceilings, *(sheet.markdown() for sheet in sheets)]
    page.write_text("\n\n".join([f"{before}{begin}", *parts, f"{end}{after}"]))


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _memory() -> str:
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB"
