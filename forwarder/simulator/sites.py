"""Where each kind of PMS is simulated, and what an account that is to speak to it there has to be set to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_UNKNOWN: Final = {"propertyId": "unknown", "roomId": "unknown"}
_UNWELCOME: Final = {"guest": {"name": "Maria Gonzalez", "email": "maria@refused.example"}}


@dataclass(frozen=True, slots=True)
class SimulatedSite:
    """`path`: of the base URL, below a name of one's own. `options`, `credential`: such as an account needs there. `refusals`: for
    each code, the fields of a booking that is refused so."""

    path: str
    credential: str = "a-simulated-credential"
    options: Mapping[str, Any] = field(default_factory=dict)
    refusals: Mapping[str, Mapping[str, Any]] = field(
        default_factory=lambda: {"property_not_found": _UNKNOWN, "guest_refused": _UNWELCOME}
    )


SITES: Final[Mapping[str, SimulatedSite]] = {
    "beds24": SimulatedSite("beds24/v2"),
    "booking-sync": SimulatedSite("booking-sync/api/v3"),
    "cloudbeds": SimulatedSite("cloudbeds/api/v1.3", options={"sourceId": "ss-7-1"}),
    "generic": SimulatedSite("generic"),
    "hostaway": SimulatedSite("hostaway/v1"),
    "website-builder": SimulatedSite("website-builder"),
}
"""Every kind that the simulator speaks."""
