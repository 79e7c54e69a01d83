"""The built-in kinds of PMS: those that a YAML page in `forwarder.pms.kinds` describes, named like the kind, and those in code.

What a kind requires of a reservation is known here without loading its adapter, which an ingress never does.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml

from forwarder.reservation.booking import Traits

_PLACE: Final = files("forwarder.pms").joinpath("kinds")
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

PAGES: Final = frozenset(page.name.removesuffix(".yaml") for page in _PLACE.iterdir() if page.name.endswith(".yaml"))
"""The kinds that have a page."""

CODED: Final[Mapping[str, tuple[str, Traits]]] = {
    "booking-sync": (
        "forwarder.pms.kinds.booking_sync.adapter:BookingSyncAdapter",
        Traits(rooms=False, cards="payment"),
    ),
    "generic": ("forwarder.pms.kinds.generic:GENERIC", Traits()),
    "website-builder": ("forwarder.pms.kinds.generic:WebsiteBuilderAdapter", Traits(website=True)),
}
"""The kinds in code: where each is, and what it requires."""


def page_text(kind: str) -> str:
    """The page of that kind."""
    return _PLACE.joinpath(f"{kind}.yaml").read_text(encoding="utf-8")


@cache
def traits_of(kind: str) -> Traits:
    """The rules of that kind for reservations. None for a kind of another distribution: its adapter refuses invalid ones."""
    if kind not in PAGES:
        return CODED[kind][1] if kind in CODED else Traits()
    page: Mapping[str, Any] = yaml.load(page_text(kind), _Loader)  # noqa: S506 - a safe one
    return Traits(rooms=page.get("rooms", True), cards=page.get("cards", "all"))
