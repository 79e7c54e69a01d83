"""Simulators of vendors' APIs, on the forwarder's simulated world: rooms that can be taken, faults on demand, counts of bookings.

`SITES` are all simulated kinds, those of the forwarder itself included; `simulator_app` serves them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from forwarder.simulator.app import SimulatorApp
from forwarder.simulator.app import simulator_app as own_simulator_app
from forwarder.simulator.world import SITES as OWN_SITES
from forwarder.simulator.world import World
from forwarder_pms_kit.simulators.beds24 import Beds24
from forwarder_pms_kit.simulators.cloudbeds import Cloudbeds
from forwarder_pms_kit.simulators.reference_fields import Guesty, Hospitable, Hostaway, Hostfully, Lodgify
from forwarder_pms_kit.simulators.reference_in_notes import Hostify, OwnerRez, Smoobu, Uplisting

_UNKNOWN_PROPERTY: Final = {"propertyId": "unknown", "roomId": "unknown"}
_UNWELCOME_GUEST: Final = {"guest": {"name": "Maria Gonzalez", "email": "maria@refused.example"}}
_BY_WORDS: Final[Mapping[str, Mapping[str, Any]]] = {"pms_refused": _UNWELCOME_GUEST}
_NUMBERS: Final[Mapping[str, Mapping[str, Any]]] = {**_BY_WORDS, "property_not_found": _UNKNOWN_PROPERTY}


@dataclass(frozen=True, slots=True)
class CheckedSite:
    """`path`: of the base URL, below a name of one's own. `credential`, `options`: as an account needs them there. `refusals`: for
    each code, the fields of a booking that is refused with it. `keeps_reference`: whether the simulator knows a booking by our
    reference; otherwise by its property and first day."""

    path: str
    credential: str = "a-simulated-credential"
    options: Mapping[str, Any] = field(default_factory=dict)
    refusals: Mapping[str, Mapping[str, Any]] = field(
        default_factory=lambda: {"property_not_found": _UNKNOWN_PROPERTY, "guest_refused": _UNWELCOME_GUEST}
    )
    keeps_reference: bool = True


SITES: Final[Mapping[str, CheckedSite]] = {
    **{kind: CheckedSite(path) for kind, path in OWN_SITES.items()},
    "beds24": CheckedSite("beds24/v2"),
    "cloudbeds": CheckedSite("cloudbeds/api/v1.3", options={"sourceId": "ss-7-1"}),
    "hostaway": CheckedSite("hostaway/v1"),
    "guesty": CheckedSite("guesty/v1", refusals=_BY_WORDS),
    "hospitable": CheckedSite("hospitable/v2", refusals=_BY_WORDS),
    "hostfully": CheckedSite("hostfully/api/v3.3", options={"agencyUid": "a-7"}, refusals=_BY_WORDS),
    "hostify": CheckedSite("hostify", refusals=_NUMBERS),
    "lodgify": CheckedSite("lodgify", refusals=_NUMBERS),
    "ownerrez": CheckedSite("ownerrez/v2", credential="me@pms.example:a-simulated-token", refusals=_NUMBERS),
    "smoobu": CheckedSite("smoobu/api", credential="a-simulated-key:a-simulated-secret", refusals=_NUMBERS),
    "uplisting": CheckedSite("uplisting", options={"clientId": "c-7"}, refusals=_BY_WORDS, keeps_reference=False),
}
"""Every kind that is simulated."""

_KINDS: Final = (
    Beds24,
    Hostaway,
    Guesty,
    Hospitable,
    Hostfully,
    Hostify,
    Lodgify,
    OwnerRez,
    Smoobu,
    Uplisting,
    Cloudbeds,  # the last: it is at any base URL
)


def simulator_app(world: World) -> SimulatorApp:
    """The forwarder's simulator over `world`, with the vendors' kinds."""
    return own_simulator_app(world, [route for kind in _KINDS for route in kind(world).routes()])
