"""Accounts as they may be set at the simulator: one of each kind as it comes, and others whose settings change what is asked."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from forwarder_pms_kit.conformance import CARD, Site
from forwarder_pms_kit.simulators import SITES
from tests.support.pms.kinds.mapped import CLOUDBEDS_LIKE

_OAUTH: Final = json.dumps(
    {"clientId": "app-7", "clientSecret": "an-application-secret", "refreshToken": "a-first-refresh-token"}
)
_PLATFORM: Final = "{origin}/platform/api/bookingsync/instant_bookings"
_CHARGING: Final = {"securePayments": {"gatewayId": "7", "gatewayName": "stripe", "url": _PLATFORM}}


@dataclass(frozen=True, slots=True)
class SimulatedAccount:
    """An account of `kind`. `speaks`: the kind whose simulation it is pointed at. `changes`: to that kind's site."""

    kind: str
    speaks: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    def at(self, site: Site) -> Site:
        """The account at the simulator that `site` is at."""
        return replace(site, **self.changes)


def _sync(*, more: Mapping[str, Any] | None = None, **options: Any) -> SimulatedAccount:
    changes = {"credential": _OAUTH, "options": options, **(more or {})}
    return SimulatedAccount("booking-sync", "booking-sync", changes)


ACCOUNTS: Final[Mapping[str, SimulatedAccount]] = {
    **{kind: SimulatedAccount(kind, kind) for kind in SITES},
    "beds24 with a token": SimulatedAccount("beds24", "beds24", {"options": {"credentialType": "token"}}),
    "booking-sync by OAuth": _sync(),
    "booking-sync, strict": _sync(strictBookings=True),
    "booking-sync, charging cards": _sync(more={"fields": {"morChannel": "PMS"}, "card": CARD}, **_CHARGING),
    "booking-sync, noting payments": _sync(
        more={"fields": {"morChannel": "SELF", "transactionId": "tx-7"}}, recordPayments=True
    ),
    "booking-sync, quoting": _sync(
        more={"fields": {"totalPrice": 380}, "refusals": {}},  # what three nights cost there
        liveQuote=True,
    ),
    "cloudbeds without a source": SimulatedAccount("cloudbeds", "cloudbeds", {"options": {}}),
    "generic with a mapping": SimulatedAccount("generic", "cloudbeds", {"options": {"mapping": CLOUDBEDS_LIKE}}),
    "guesty by client credentials": SimulatedAccount("guesty", "guesty", {"credential": "4711:a-client-secret"}),
    "hostaway by client credentials": SimulatedAccount("hostaway", "hostaway", {"credential": "4711:a-client-secret"}),
}
"""What it is → the account."""

REPRESENTATIVE: Final = frozenset(
    {"beds24", "booking-sync", "cloudbeds", "generic", "hostaway", "hostify", "website-builder"}
)
"""One account of each adapter's code: hostify's stands for all kinds that are nothing but a page."""
