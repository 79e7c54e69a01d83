"""Breadth-first search through all states, and the shortest story of what does not hold."""

import time
from collections import deque
from dataclasses import dataclass
from typing import Final
from unittest import mock

from tests.stage.protocol.exploration.pushes import Pushes
from tests.stage.protocol.exploration.rows import opened_rows
from tests.stage.protocol.exploration.world import Bound, State, Violation, World
from tests.support.worker.scripted_pms import FIND, KEY, NEITHER, ONLY_KEY

PMS: Final = {"find": FIND, "key and find": KEY, "key": ONLY_KEY, "neither": NEITHER}
"""What a PMS can be relied on for, by name: looked up by our reference, created again under our key, both, or neither."""


@dataclass(frozen=True, slots=True)
class Explored:
    """`seconds`: of CPU. `story`: the shortest history that ends in a violation; empty if none does. `faults`: that struck."""

    states: int
    steps: int
    depth: int
    seconds: float
    complete: bool
    violation: str = ""
    story: tuple[str, ...] = ()
    faults: frozenset[str] = frozenset()

    def __str__(self) -> str:
        rate = f"{self.states} states, {self.steps} steps, depth {self.depth}, {self.seconds:.1f} s of CPU"
        if not self.violation:
            return f"{rate}: everything holds" + ("" if self.complete else ", as far as it was explored")
        told = "\n".join(f"{number:3}. {text}" for number, text in enumerate(self.story, 1))
        return f"{rate}\n{self.violation}:\n{told}"


def explore(
    bound: Bound,
    *,
    pms: str = "find",
    settles: float = 30.0,
    max_seconds: float = float("inf"),
) -> Explored:
    """Visits every state within the bound, nearest first, until one violates what must hold."""
    began = time.process_time()
    with opened_rows() as rows, mock.patch("random.random", return_value=0.0):
        pushes = Pushes(PMS[pms], settles)
        world = World(bound, rows, pushes, settles=settles, key=PMS[pms].idempotent_create)
        first = world.first()
        came: dict[State, tuple[State | None, str, int]] = {first: (None, "", 0)}
        queue, steps, depth = deque([first]), 0, 0

        def explored(
            violation: str = "", last: State | None = None, text: str = "", *, complete: bool = True
        ) -> Explored:
            story = [text] if text else []
            while last is not None:
                last, before, _ = came[last]
                story.append(before)
            seconds = time.process_time() - began
            faults = frozenset[str]().union(*(each.faults for each in came))
            told = tuple(filter(None, story[::-1]))
            return Explored(len(came), steps, depth, seconds, complete, violation, told, faults)

        while queue:
            state = queue.popleft()
            depth = came[state][2]
            text, ends = "", True
            try:
                for text, after in world.steps(state):
                    steps += 1
                    ends = ends and bool(after.faults - state.faults)
                    if after not in came:
                        world.check(after)
                        came[after] = (state, text, depth + 1)
                        queue.append(after)
                text = ""
                if ends:
                    world.check_end(state)
            except Violation as violation:
                return explored(str(violation), state, text)
            if time.process_time() - began > max_seconds:
                return explored(complete=False)
        return explored()
