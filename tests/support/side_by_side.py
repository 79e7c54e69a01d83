"""A test run in several processes (pytest-xdist): what goes to one process together, and how each tells what it found.

A file's tests go together, and all of the fault suite, whose cases share their servers. Every process has servers of its own.
What a process has to say at the end of the run is a section of lines, which the one that prints is told of. Touches pytest alone.
"""

from typing import Any, NamedTuple

import pytest
from xdist.scheduler import LoadScopeScheduling

_TOGETHER = ("tests/fault/",)
_OUTPUT = "sections"


class Section(NamedTuple):
    """Lines for the end of the run; without a title, they stand by themselves."""

    title: str
    lines: list[str]


_said = pytest.StashKey[list[Section]]()


class ByFile(LoadScopeScheduling):
    """Hands out the next file, in the order of collection, to whichever process has done its last."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in _TOGETHER if nodeid.startswith(folder)), nodeid.partition("::")[0])


def is_part(config: pytest.Config) -> bool:
    """Whether this process is one of several, and so prints nothing."""
    return hasattr(config, "workerinput")


def say(config: pytest.Config, section: Section) -> None:
    """Have that printed at the end of the run."""
    config.stash.setdefault(_said, []).append(section)


def said(config: pytest.Config) -> list[Section]:
    """All that is to be printed, by whichever process."""
    return config.stash.get(_said, [])


def pass_on(config: pytest.Config) -> None:
    """In one of several processes, at its end: hand over what it said."""
    if is_part(config):
        output: dict[str, Any] = config.workeroutput  # type: ignore[attr-defined]  # xdist's own addition
        output[_OUTPUT] = [tuple(section) for section in said(config)]


def take_over(config: pytest.Config, output: dict[str, Any]) -> None:
    """What a process handed over, in the one that prints."""
    for title, lines in output.get(_OUTPUT, ()):
        say(config, Section(title, lines))
