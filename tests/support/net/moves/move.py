"""The base of every move, which draws its fields by itself."""

import dataclasses
import random
from typing import Any, ClassVar, Final, Self

from tests.support.net.world import World

MOVES: Final[list[type["Move"]]] = []
"""Every kind of move."""


def one_of(*choices: Any) -> Any:
    """A field that is drawn from these. The first is the simplest: shrinking tries it."""
    return dataclasses.field(default=choices[0], metadata={"choices": choices})


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """`weight`: how often it is drawn, against others."""

    weight: ClassVar[int] = 2

    def __init_subclass__(cls) -> None:
        # A dataclass with slots is made twice: the later one counts.
        MOVES[:] = [each for each in MOVES if each.__qualname__ != cls.__qualname__]
        MOVES.append(cls)

    @classmethod
    def draw(cls, rng: random.Random) -> Self:
        """One with fields drawn from their choices."""
        return cls(**{each.name: rng.choice(each.metadata["choices"]) for each in dataclasses.fields(cls)})

    def happen(self, world: World) -> None:
        """Do it, now. Time goes by afterwards."""
        raise NotImplementedError

    def __str__(self) -> str:
        values = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self))
        return f"{type(self).__name__}({values})"
