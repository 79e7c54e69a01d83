"""What each built-in kind of PMS asks of a reservation. Known without its adapter, which an ingress does not load for it."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import yaml

from forwarder.pms.pages import PAGES, page_text
from forwarder.reservation.checks.rules import Traits

_OF_CODE: Final[Mapping[str, Traits]] = {
    "booking-sync": Traits(rooms=False, cards="payment"),
    "generic": Traits(),
    "website-builder": Traits(website=True),
}
_OTHER: Final = Traits()
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def traits_of(kind: str) -> Traits:
    """Those of that kind. A kind of another distribution asks nothing here: its adapter refuses what it must."""
    if kind not in PAGES:
        return _OF_CODE.get(kind, _OTHER)
    page: Mapping[str, Any] = yaml.load(page_text(kind), _Loader)  # noqa: S506 - a safe one
    return Traits(rooms=page.get("rooms", True), cards=page.get("cards", "all"))
