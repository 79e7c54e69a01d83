"""What each built-in kind of PMS asks of a reservation. Known without its adapter, which an ingress does not load for it."""

from collections.abc import Mapping
from typing import Final

from forwarder.reservation.checks.rules import Traits

_TRAITS: Final[Mapping[str, Traits]] = {
    "beds24": Traits(cards="none"),
    "booking-sync": Traits(rooms=False, cards="payment"),
    "cloudbeds": Traits(cards="none"),
    "generic": Traits(),
    "guesty": Traits(rooms=False, cards="none"),
    "hospitable": Traits(rooms=False, cards="none"),
    "hostaway": Traits(rooms=False, cards="none"),
    "hostfully": Traits(rooms=False, cards="none"),
    "hostify": Traits(rooms=False, cards="none"),
    "lodgify": Traits(cards="none"),
    "smoobu": Traits(rooms=False, cards="none"),
    "uplisting": Traits(rooms=False, cards="none"),
    "website-builder": Traits(website=True),
}
_OTHER: Final = Traits()


def traits_of(kind: str) -> Traits:
    """Those of that kind. A kind of another distribution asks nothing here: its adapter refuses what it must."""
    return _TRAITS.get(kind, _OTHER)
