"""What can befall a worker at one of its steps, and when."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal

Seam = Literal["store", "log", "pms"]


class Effect(Enum):
    """At one step: a transaction of the store, a publish or a commit of offsets, a push."""

    REFUSED = "the step fails, and is not carried out"
    UNANSWERED = "the step is carried out, and fails for all that the worker learns"
    CRASH_BEFORE = "the worker dies before the step"
    CRASH_AFTER = "the worker dies once the step is carried out"
    STOP_BEFORE = "the worker is stopped before the step, and goes on later"
    STOP_AFTER = "the worker is stopped before it learns of the answer, and goes on later"
    SLEEP_BEFORE = "the worker's machine sleeps before the step, and wakes later"
    SLOW = "the step takes long"
    LATE = "the step is carried out, and its answer takes long"
    ROLLED_BACK = "the connection dies before the commit: nothing of the step is done, and it fails"
    LONG_CONNECTING = "the step has begun, and a connection for it is long in coming"
    CLOCK_JUMPS = "the host's wall clock is set, by so many seconds"


BEFORE = frozenset({Effect.REFUSED, Effect.CRASH_BEFORE, Effect.STOP_BEFORE, Effect.SLEEP_BEFORE, Effect.SLOW})
"""Those that strike before anything is carried out."""


@dataclass(frozen=True, slots=True)
class Mishap:
    """`effect` at the `nth` step at that seam from now (1: the next), or of the steps of that `name` alone. `seconds`: for how
    long, where it lasts, or how far."""

    seam: Seam
    nth: int
    effect: Effect
    seconds: float = 0.0
    name: str | None = None


@dataclass(slots=True)
class Mishaps:
    """Those that are still to come for one worker."""

    _coming: list[Mishap] = field(default_factory=list)

    def add(self, mishap: Mishap) -> None:
        """Let it come."""
        self._coming.append(mishap)

    def ahead(self, seam: Seam, name: str) -> Mishap | None:
        """That which strikes before the next step, if one does; it is over with that."""
        return self._take(seam, name, BEFORE)

    def connecting(self, seam: Seam, name: str) -> Mishap | None:
        """As `ahead`, while the step waits for its connection."""
        return self._take(seam, name, {Effect.LONG_CONNECTING})

    def undone(self, seam: Seam, name: str) -> Mishap | None:
        """As `ahead`, where the step is carried out and undone. It counts as a step."""
        found = self._take(seam, name, {Effect.ROLLED_BACK})
        if found is not None:
            self._count(seam, name)
        return found

    def step(self, seam: Seam, name: str) -> Mishap | None:
        """A step is being carried out: that which strikes with it, if one does."""
        found = self._take(seam, name, set(Effect))
        self._count(seam, name)
        return found

    def _take(self, seam: Seam, name: str, effects: AbstractSet[Effect]) -> Mishap | None:
        found = next((each for each in self._coming if _next(each, seam, name) and each.effect in effects), None)
        if found is not None:
            self._coming.remove(found)
        return found

    def _count(self, seam: Seam, name: str) -> None:
        self._coming = [
            replace(each, nth=each.nth - 1) if _concerns(each, seam, name) else each for each in self._coming
        ]

    def clear(self) -> None:
        """None any more."""
        self._coming.clear()


def _next(mishap: Mishap, seam: Seam, name: str) -> bool:
    return _concerns(mishap, seam, name) and mishap.nth <= 1


def _concerns(mishap: Mishap, seam: Seam, name: str) -> bool:
    return mishap.seam == seam and mishap.name in (None, name)
