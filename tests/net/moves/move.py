"""The base of every move, which draws its fields by itself."""

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from tests.net.world import World

MOVES: Final[list[type["Move"]]] = []
"""Every kind of move."""


def one_of(*choices: Any) -> Any:
    """A field that is drawn from these. The first is the simplest: shrinking tries it."""
    return dataclasses.field(default=choices[0], metadata={"choices": choices})


def some(rng: random.Random, choices: Sequence[Any]) -> Sequence[Any]:
    """All of them, or one or two."""
    return choices if rng.random() < 0.5 else rng.sample(choices, min(rng.randint(1, 2), len(choices)))


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """One kind of move."""

    def __init_subclass__(cls) -> None:
        # A dataclass with slots is made twice: the later one counts.
        MOVES[:] = [each for each in MOVES if each.__qualname__ != cls.__qualname__]
        MOVES.append(cls)

    @classmethod
    def narrowed(cls, rng: random.Random) -> Mapping[str, Sequence[Any]]:
        """The choices of one history: of about half of the fields only one or two values, so that equal mishaps meet more often."""
        return {each.name: some(rng, each.metadata["choices"]) for each in dataclasses.fields(cls)}

    @classmethod
    def draw(cls, rng: random.Random, choices: Mapping[str, Sequence[Any]]) -> Self:
        """One with fields drawn from `choices`."""
        return cls(**{name: rng.choice(values) for name, values in choices.items()})

    def happen(self, world: World) -> None:
        """Do it, now. Time goes by afterwards."""
        raise NotImplementedError

    def __str__(self) -> str:
        values = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self))
        return f"{type(self).__name__}({values})"
