"""A test run in several processes (pytest-xdist): what goes to one process together, and how each tells what it found.

A file's tests go together, and those of the fault suite that share a service. What takes longest begins first, so that all
processes end at about the same time: the fault suite, the state machines, whole deployments, and the many short tests last.
What a process has to say at the end of the run is a section of lines, which the one that prints is told of. Touches pytest alone.
"""

from typing import Any, NamedTuple

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

_TOGETHER = ("tests/fault/",)
_ALONE = ("tests/fault/test_embedded.py", "tests/fault/test_judge.py", "tests/fault/test_slow_connections.py")
"""Fault cases with servers of their own."""
_ORDER = (
    "tests/fault/test_redelivery.py",  # it reads the shared topic from its beginning: as long as that is short
    "tests/fault/",
    "tests/contract/test_guarantees.py",
    "tests/journey/",
    "tests/contract/",
    "tests/stage/",
)
_OUTPUT = "sections"


class Section(NamedTuple):
    """Lines for the end of the run; without a title, they stand by themselves."""

    title: str
    lines: list[str]


_said = pytest.StashKey[list[Section]]()


class ByFile(LoadScopeScheduling):
    """Hands out the next file, in the order of `longest_first`, to whichever process has done its last."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # by how many tests a file has, which says little

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        together = next((folder for folder in _TOGETHER if file.startswith(folder)), file)
        return file if file in _ALONE else together


def longest_first(items: list[pytest.Item]) -> None:
    """Put what takes longest before everything else."""
    items.sort(
        key=lambda item: next((place for place, at in enumerate(_ORDER) if item.nodeid.startswith(at)), len(_ORDER))
    )


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
