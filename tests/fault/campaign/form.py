"""How long a campaign is, and the one seed that everything random in it comes from."""

import random
from dataclasses import dataclass
from typing import Literal

Length = Literal["short", "long"]


@dataclass(frozen=True, slots=True)
class Form:
    """`short` is for every change, `long` for a table that can be shown. The same seed draws the same faults again."""

    length: Length
    seed: int
    count: int | None = None
    minutes: float = 24 * 60.0
    """How many submissions the case with everything at once has, where it is not by its length; it ends earlier after `minutes`."""

    def times(self, *, short: int, long: int) -> int:
        """How often a fault is injected, by the campaign's length."""
        return short if self.length == "short" else long

    def random_for(self, case: str) -> random.Random:
        """What a case draws from. It hangs on no other case, so that one alone can be run again."""
        return random.Random(f"{self.seed}/{case}")

    def __str__(self) -> str:
        return f"{self.length} form, seed {self.seed}"

    def command(self, case: str | None = None) -> str:
        """What runs it again: all of it, or one case."""
        alone = "" if case is None else f"-k {case}"
        if self.length == "short":
            return f"pytest tests/fault --faults-seed={self.seed} {alone}".rstrip()
        count = "" if self.count is None else f" COUNT={self.count}"
        return f"make faults SEED={self.seed}{count}" + (f" ARGS='{alone}'" if alone else "")
