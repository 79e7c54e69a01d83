"""Where each kind of PMS is simulated, and the settings of an account that uses it there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

UNKNOWN_PROPERTY: Final[Mapping[str, Any]] = {"propertyId": "unknown", "roomId": "unknown"}
UNWELCOME_GUEST: Final[Mapping[str, Any]] = {"guest": {"name": "Maria Gonzalez", "email": "maria@refused.example"}}


@dataclass(frozen=True, slots=True)
class SimulatedSite:
    """`path`: of the base URL, below a name of one's own. `options`, `credential`: as an account needs them there. `refusals`: for
    each code, the fields of a booking that is refused with it. `keeps_reference`: whether the simulator knows a booking by our
    reference; otherwise by its property and first day."""

    path: str
    credential: str = "a-simulated-credential"
    options: Mapping[str, Any] = field(default_factory=dict)
    refusals: Mapping[str, Mapping[str, Any]] = field(
        default_factory=lambda: {"property_not_found": UNKNOWN_PROPERTY, "guest_refused": UNWELCOME_GUEST}
    )
    keeps_reference: bool = True


SITES: Final[Mapping[str, SimulatedSite]] = {
    "booking-sync": SimulatedSite("booking-sync/api/v3"),
    "generic": SimulatedSite("generic"),
    "website-builder": SimulatedSite("website-builder"),
}
"""The kinds that the forwarder itself simulates: for test keys, `forwarder up` and `forwarder simulate`."""
