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
from forwarder_pms_kit.simulators.beds24 import beds24_routes
from forwarder_pms_kit.simulators.cloudbeds import cloudbeds_routes
from forwarder_pms_kit.simulators.guesty import guesty_routes
from forwarder_pms_kit.simulators.hospitable import hospitable_routes
from forwarder_pms_kit.simulators.hostaway import hostaway_routes
from forwarder_pms_kit.simulators.hostfully import hostfully_routes
from forwarder_pms_kit.simulators.hostify import hostify_routes
from forwarder_pms_kit.simulators.lodgify import lodgify_routes
from forwarder_pms_kit.simulators.ownerrez import ownerrez_routes
from forwarder_pms_kit.simulators.smoobu import smoobu_routes
from forwarder_pms_kit.simulators.uplisting import uplisting_routes

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

_ROUTES: Final = (
    beds24_routes,
    hostaway_routes,
    guesty_routes,
    hospitable_routes,
    hostfully_routes,
    hostify_routes,
    lodgify_routes,
    ownerrez_routes,
    smoobu_routes,
    uplisting_routes,
    cloudbeds_routes,
)


def simulator_app(world: World) -> SimulatorApp:
    """The forwarder's simulator over `world`, with the vendors' kinds."""
    return own_simulator_app(world, [route for routes_of in _ROUTES for route in routes_of(world)])
