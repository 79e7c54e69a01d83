"""Simulators of vendors' APIs, on the forwarder's simulated world: rooms that can be taken, faults on demand, counts of bookings.

`SITES` are all simulated kinds, those of the forwarder itself included; `simulator_app` serves them.
"""

from collections.abc import Mapping
from typing import Any, Final

from forwarder.simulator.app import SimulatorApp
from forwarder.simulator.app import simulator_app as own_simulator_app
from forwarder.simulator.sites import SITES as OWN_SITES
from forwarder.simulator.sites import UNKNOWN_PROPERTY, UNWELCOME_GUEST, SimulatedSite
from forwarder.simulator.world import World
from forwarder_pms_kit.simulators.beds24 import Beds24
from forwarder_pms_kit.simulators.cloudbeds import Cloudbeds
from forwarder_pms_kit.simulators.reference_fields import Guesty, Hospitable, Hostaway, Hostfully, Lodgify
from forwarder_pms_kit.simulators.reference_in_notes import Hostify, OwnerRez, Smoobu, Uplisting

_BY_WORDS: Final[Mapping[str, Mapping[str, Any]]] = {"pms_refused": UNWELCOME_GUEST}
_NUMBERS: Final[Mapping[str, Mapping[str, Any]]] = {**_BY_WORDS, "property_not_found": UNKNOWN_PROPERTY}

SITES: Final[Mapping[str, SimulatedSite]] = {
    **OWN_SITES,
    "beds24": SimulatedSite("beds24/v2"),
    "cloudbeds": SimulatedSite("cloudbeds/api/v1.3", options={"sourceId": "ss-7-1"}),
    "hostaway": SimulatedSite("hostaway/v1"),
    "guesty": SimulatedSite("guesty/v1", refusals=_BY_WORDS),
    "hospitable": SimulatedSite("hospitable/v2", refusals=_BY_WORDS),
    "hostfully": SimulatedSite("hostfully/api/v3.3", options={"agencyUid": "a-7"}, refusals=_BY_WORDS),
    "hostify": SimulatedSite("hostify", refusals=_NUMBERS),
    "lodgify": SimulatedSite("lodgify", refusals=_NUMBERS),
    "ownerrez": SimulatedSite("ownerrez/v2", credential="me@pms.example:a-simulated-token", refusals=_NUMBERS),
    "smoobu": SimulatedSite("smoobu/api", credential="a-simulated-key:a-simulated-secret", refusals=_NUMBERS),
    "uplisting": SimulatedSite("uplisting", options={"clientId": "c-7"}, refusals=_BY_WORDS, keeps_reference=False),
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
