"""Where each kind of PMS is simulated, and what an account that is to speak to it there has to be set to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_UNKNOWN: Final[Mapping[str, Any]] = {"propertyId": "unknown", "roomId": "unknown"}
_UNWELCOME: Final[Mapping[str, Any]] = {"guest": {"name": "Maria Gonzalez", "email": "maria@refused.example"}}

_BY_WORDS: Final[Mapping[str, Mapping[str, Any]]] = {"pms_refused": _UNWELCOME}
_NUMBERS: Final[Mapping[str, Mapping[str, Any]]] = {**_BY_WORDS, "property_not_found": _UNKNOWN}


@dataclass(frozen=True, slots=True)
class SimulatedSite:
    """`path`: of the base URL, below a name of one's own. `options`, `credential`: such as an account needs there. `refusals`: for
    each code, the fields of a booking that is refused so. `keeps_reference`: whether the world knows a booking by our
    reference; else
    by its property and first day."""

    path: str
    credential: str = "a-simulated-credential"
    options: Mapping[str, Any] = field(default_factory=dict)
    refusals: Mapping[str, Mapping[str, Any]] = field(
        default_factory=lambda: {"property_not_found": _UNKNOWN, "guest_refused": _UNWELCOME}
    )
    keeps_reference: bool = True


SITES: Final[Mapping[str, SimulatedSite]] = {
    "beds24": SimulatedSite("beds24/v2"),
    "booking-sync": SimulatedSite("booking-sync/api/v3"),
    "cloudbeds": SimulatedSite("cloudbeds/api/v1.3", options={"sourceId": "ss-7-1"}),
    "generic": SimulatedSite("generic"),
    "hostaway": SimulatedSite("hostaway/v1"),
    "website-builder": SimulatedSite("website-builder"),
    "guesty": SimulatedSite("guesty/v1", refusals=_BY_WORDS),
    "hospitable": SimulatedSite("hospitable/v2", refusals=_BY_WORDS),
    "hostfully": SimulatedSite("hostfully/api/v3.2", options={"agencyUid": "a-7"}, refusals=_BY_WORDS),
    "hostify": SimulatedSite("hostify", refusals=_NUMBERS),
    "lodgify": SimulatedSite("lodgify", refusals=_NUMBERS),
    "smoobu": SimulatedSite("smoobu/api", credential="a-simulated-key:a-simulated-secret", refusals=_NUMBERS),
    "uplisting": SimulatedSite("uplisting", options={"clientId": "c-7"}, refusals=_BY_WORDS, keeps_reference=False),
}
"""Every kind that the simulator speaks."""
