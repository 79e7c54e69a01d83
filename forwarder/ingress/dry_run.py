"""Trying a submission out: what its PMS would be asked for, and what the rules of the integration have against it.

Nothing is published or kept of it, and its Idempotency-Key stays free. The card is in memory alone, and shows as its masked number.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import parse_qs

from pydantic_core import from_json

from forwarder.http.messages import HttpRequest
from forwarder.ingress.message import card_of, published_form
from forwarder.pms.traits import traits_of
from forwarder.reservation.booking import booking_of
from forwarder.reservation.problems import requests
from forwarder.reservation.problems.problem import Fault, Problem
from forwarder.reservation.request import ReservationRequest
from forwarder.reservation.rules import refusals
from forwarder.tenancy.port import Account

_VALUES: Final[Mapping[str, bool]] = {"true": True, "false": False}


def asks_for_dry_run(request: HttpRequest) -> bool | Problem:
    """Whether the query says `dryRun=true`. Other parameters are left alone."""
    query: bytes = request.scope["query_string"]
    if not query:
        return False
    given = set(parse_qs(query.decode("latin-1"), keep_blank_values=True).get("dryRun", ("false",)))
    if len(given) > 1:
        return _invalid("contradictory", "is given more than once, with different values")
    dry_run = _VALUES.get(given.pop())
    return _invalid("invalid_value", "must be true or false") if dry_run is None else dry_run


def _invalid(code: str, detail: str) -> Problem:
    return requests.INVALID_QUERY.problem(f"dryRun {detail}.", faults=(Fault("/dryRun", code, detail),))


@dataclass(frozen=True, slots=True)
class DryRun:
    """What would come of a request. `booking` is what the PMS would be asked for, None where a rule refuses that; `refused`: what
    each rule says that does, all of them."""

    account: Account
    booking: Mapping[str, Any] | None
    refused: tuple[Problem, ...]

    @property
    def success(self) -> bool:
        """Whether it would be accepted."""
        return not self.refused

    def as_json(self) -> dict[str, Any]:
        """`accountPaused`: what is submitted now would wait until the account is resumed."""
        return {
            "dryRun": True,
            "accountKind": self.account.kind,
            "accountPaused": self.account.paused,
            "wouldSend": self.booking,
            "refusals": [problem.as_json() for problem in self.refused],
        }


def dry_run(account: Account, request: ReservationRequest, now: datetime) -> DryRun:
    """What would come of `request` for this account."""
    card = card_of(request)
    reservation = from_json(published_form(request, card))
    traits = traits_of(account.kind)
    refused = tuple(refusals(traits, reservation, card, now))
    if refused:
        return DryRun(account, None, refused)
    booking = booking_of(traits, "", reservation, card)
    shown = {
        "reservation": booking.fields,
        "cardDetails": reservation.get("cardDetails"),
        "websiteId": booking.website_id,
    }
    return DryRun(account, shown, ())
