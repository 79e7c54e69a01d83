"""The vocabulary of the backend ladder: what a rung is, and what it means that a server cannot be had.

Starts nothing.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol


class Unavailable(Exception):
    """A real server cannot be had on this machine. The text is the reason, for a person to read."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: how to reach it, and where it comes from, in words."""

    address: str
    origin: str


class Rung(Protocol):
    """One way to come by a server."""

    @property
    def origin(self) -> str:
        """What a person is told that the tests run against."""
        ...

    def obstacle(self) -> str | None:
        """Why this way is closed, found within about a second without starting anything; None where it is open."""
        ...

    def start(self, open_until: ExitStack) -> str:
        """The address of a server that answers; it is stopped when `open_until` closes. Raises `Unavailable`."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """Which rung will be taken, and why those above it were not."""

    chosen: Rung | None
    passed_over: tuple[str, ...]

    def start(self, open_until: ExitStack) -> str:
        """As `Rung.start`, of the chosen one."""
        if self.chosen is None:
            raise Unavailable(str(self))
        return self.chosen.start(open_until)

    def __str__(self) -> str:
        reasons = f" ({'; '.join(self.passed_over)})" if self.passed_over else ""
        return f"{self.chosen.origin if self.chosen else 'none, embedded alone'}{reasons}"


def plan(rungs: Sequence[Rung]) -> Plan:
    """The first open rung from the top."""
    passed_over: list[str] = []
    for rung in rungs:
        obstacle = rung.obstacle()
        if obstacle is None:
            return Plan(rung, tuple(passed_over))
        passed_over.append(obstacle)
    return Plan(None, tuple(passed_over))
