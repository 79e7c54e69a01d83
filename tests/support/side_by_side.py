"""A test run in several processes (pytest-xdist): what goes to one process together, and how each tells what it found.

A file's tests go together, and those of the fault suite that share a service. What takes longest begins first, so that all
processes end at about the same time: the fault suite, the state machines, whole deployments, and the many short tests last.
What a process has to say at the end of the run is a section of lines, which the one that prints is told of. Touches pytest alone.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

_TOGETHER = ("tests/fault/",)
_ALONE = tuple(
    f"tests/fault/test_{name}.py"
    for name in ("embedded", "failover", "fairness", "judge", "recover", "restore", "slow_connections")
)
"""Fault cases that do not use the shared service."""
_ORDER = (
    "tests/fault/test_redelivery.py",  # it reads the shared topic from its beginning: as long as that is short
    "tests/fault/",
    "tests/net/",
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
    """Put what takes longest before everything else, and whatever order files were found in, the same one."""

    @cache
    def place(file: str) -> tuple[int, str]:
        return next((place for place, at in enumerate(_ORDER) if file.startswith(at)), len(_ORDER)), file

    items.sort(key=lambda item: place(item.nodeid.partition("::")[0]))


def spread_collecting(config: pytest.Config) -> None:
    """In one of several processes that run everything: begin to collect elsewhere than the others do. Each compiles, with its
    asserts rewritten, what none of the others has yet."""
    if not is_part(config) or config.args != config.getini("testpaths"):
        return
    of_this: Mapping[str, Any] = config.workerinput  # type: ignore[attr-defined]  # xdist's own addition
    places = sorted(map(str, _places(config.rootpath / "tests")))
    first = len(places) * int(of_this["workerid"].removeprefix("gw")) // of_this["workercount"]
    config.args[:] = [*places[first:], *places[:first]]


def _places(tests: Path) -> Iterator[Path]:
    """Where tests are: every file of theirs is in exactly one."""
    for path in tests.glob("*/*"):
        if path.is_dir() and path.name != "__pycache__" and path.parent.name != "support":
            yield path
    yield from (*tests.glob("test_*.py"), *tests.glob("*/test_*.py"))


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
