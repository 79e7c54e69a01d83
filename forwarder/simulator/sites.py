"""The simulated PMSs as their callers see them: where each kind is, what an account needs there, and test values. Test values are
contents of a booking that select its outcome, in every kind's wire form: the last word of the guest's name, or a number that names
the property or the room. No real guest or property has such a value. Published in docs/guides/test-mode.md."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, NamedTuple


@dataclass(frozen=True, slots=True)
class SimulatedSite:
    """`path`: of the base URL, below a name of one's own. `options`, `credential`: as an account needs them there."""

    path: str
    credential: str = "a-simulated-credential"
    options: Mapping[str, Any] = field(default_factory=dict)


SITES: Final[Mapping[str, SimulatedSite]] = {
    "booking-sync": SimulatedSite("booking-sync/api/v3"),
    "generic": SimulatedSite("generic"),
    "website-builder": SimulatedSite("website-builder"),
}
"""The kinds that the forwarder itself simulates: for test keys, `forwarder up` and `forwarder simulate`."""
SLOW_SECONDS: Final = 5.0
DOWN_SECONDS: Final = 60.0


class Effect(Enum):
    """What a simulated PMS does with a booking."""

    SOLD_OUT = auto()
    PRICE_CHANGED = auto()
    CARD_REFUSED = auto()
    SLOW = auto()  # It is made, and the response comes after `SLOW_SECONDS`
    DOWN = auto()  # 503 for `DOWN_SECONDS` from the first request on; then it is made
    ANSWER_LOST = auto()  # It is made, and the connection breaks before the response


class Magic(NamedTuple):
    """Two test values for one effect: a guest's last name, in any case, and the number of a property or a room."""

    last_name: str
    number: int


MAGIC: Final[Mapping[Effect, Magic]] = {
    Effect.SOLD_OUT: Magic("Test-Sold-Out", 9_990_000_001),
    Effect.PRICE_CHANGED: Magic("Test-Price-Changed", 9_990_000_002),
    Effect.CARD_REFUSED: Magic("Test-Card-Refused", 9_990_000_003),
    Effect.SLOW: Magic("Test-Slow", 9_990_000_004),
    Effect.DOWN: Magic("Test-Down", 9_990_000_005),
    Effect.ANSWER_LOST: Magic("Test-Answer-Lost", 9_990_000_006),
}
"""All test values. They are published: their meaning never changes."""
_BY_WORD: Final = {
    word: effect for effect, magic in MAGIC.items() for word in (magic.last_name.casefold(), str(magic.number))
}


def effect_of(*values: object) -> Effect | None:
    """The effect of the first test value among `values`: names of the guest, identifiers of property and room."""
    found = (_BY_WORD.get(str(value).rpartition(" ")[2].casefold()) for value in values)
    return next((effect for effect in found if effect is not None), None)
