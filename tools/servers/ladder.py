"""The vocabulary of the backend ladder: what a rung is, and what it means that a server cannot be had.

Starts nothing.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol


class Unavailable(Exception):
    """A real server cannot be had on this machine. The text is the reason, for a person to read."""


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
    """Which rung will be taken, why those above it were not, and those below it."""

    chosen: Rung | None
    passed_over: tuple[str, ...] = ()
    below: tuple[Rung, ...] = ()

    def start(self, open_until: ExitStack) -> str:
        """As `Rung.start`, of the chosen one; what it opened before it failed is closed again."""
        if self.chosen is None:
            raise Unavailable("; ".join(self.passed_over))
        with ExitStack() as opened:
            address = self.chosen.start(opened)
            open_until.enter_context(opened.pop_all())
        return address

    def without(self, reason: Unavailable) -> "Plan":
        """The plan where the chosen rung turned out not to work."""
        return plan(self.below, (*self.passed_over, str(reason)))

    def __str__(self) -> str:
        reasons = f" ({'; '.join(self.passed_over)})" if self.passed_over else ""
        return f"{self.chosen.origin if self.chosen else 'none, embedded alone'}{reasons}"


def plan(rungs: Sequence[Rung], passed_over: tuple[str, ...] = ()) -> Plan:
    """The first open rung from the top, below those that were passed over already."""
    for place, rung in enumerate(rungs):
        obstacle = rung.obstacle()
        if obstacle is None:
            return Plan(rung, passed_over, tuple(rungs[place + 1 :]))
        passed_over = (*passed_over, obstacle)
    return Plan(None, passed_over)
