"""Dry runs of submissions: the requests that the PMS would get, and the refusals of the integration's rules.

Nothing is published or stored, and the Idempotency-Key stays unused. The card stays in memory and is shown masked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from pydantic_core import from_json

from forwarder.http.messages import HttpRequest
from forwarder.http.query_string import parameters_of
from forwarder.ingress.card_text import CardTextCheck
from forwarder.ingress.losses import CallerWarning, Losses, connection_to
from forwarder.ingress.message import card_of, published_form
from forwarder.pms.built_in import traits_of
from forwarder.pms.port import BadOptions, Preview, Rehearsal, UnknownKind
from forwarder.reservation.booking import Booking, booking_of
from forwarder.reservation.checks.fields import Reading
from forwarder.reservation.checks.rules import refusals
from forwarder.reservation.outcome import Deferred, Rejected
from forwarder.reservation.problems import endings, requests
from forwarder.reservation.problems.problem import Fault, Problem
from forwarder.tenancy.port import Account

DRY_RUN: Final = "dryRun"
"""The query parameter that requests a dry run."""

_REFERENCE: Final = "the-request-id"
"""Placeholder for the request id, our reference at the PMS: a dry run has none."""

_VALUES: Final[Mapping[str, bool]] = {"true": True, "false": False}


def asks_for_dry_run(request: HttpRequest) -> bool | Problem:
    """Whether the query has `dryRun=true`; the problem if the value is invalid."""
    if not request.scope["query_string"]:
        return False
    given = set(parameters_of(request.scope).get(DRY_RUN, ("false",)))
    if len(given) > 1:
        return _invalid("contradictory", "is given more than once, with different values")
    dry_run = _VALUES.get(given.pop())
    return _invalid("invalid_value", "must be true or false") if dry_run is None else dry_run


def _invalid(code: str, detail: str) -> Problem:
    return requests.INVALID_QUERY.problem(f"dryRun {detail}.", faults=(Fault("/dryRun", code, detail),))


@dataclass(frozen=True, slots=True)
class DryRun:
    """The result of a dry run. `booking`: the booking for the PMS, None if a rule refuses it; `refused`: the refusals of all rules,
    and any other certain obstacle. `rehearsal`: the requests that would be sent."""

    account: Account
    booking: Booking | None
    refused: tuple[Problem, ...]
    warnings: tuple[CallerWarning, ...] = ()
    rehearsal: Rehearsal | None = None

    @property
    def success(self) -> bool:
        """Whether it would be accepted."""
        return not self.refused

    def as_json(self) -> dict[str, Any]:
        """`accountPaused`: a submission would wait until the account is resumed."""
        return {
            "dryRun": True,
            "accountKind": self.account.kind,
            "accountPaused": self.account.paused,
            "wouldSend": None if self.rehearsal is None else _requests(self.rehearsal),
            "refusals": [problem.as_json() for problem in self.refused],
            "warnings": [warning.as_json() for warning in self.warnings],
        }


def _requests(rehearsal: Rehearsal) -> dict[str, Any]:
    shown = [
        {"method": request.method, "path": request.path, "mediaType": request.media_type, "body": request.body}
        for request in rehearsal.requests
    ]
    return {"requests": shown, "assumed": list(rehearsal.assumed)}


def dry_run(
    account: Account, read: Reading, now: datetime, losses: Losses, card_text: CardTextCheck
) -> DryRun | Problem:
    """Applies the account's rules to `read`; or returns the problem that precludes them. `rehearsed` adds the requests that would
    be sent."""
    request = read.request
    card = card_of(request)
    checked = card_text.check(request, published_form(request, card), account.skipped_checks)
    if checked.refused is not None:
        return checked.refused
    reservation = from_json(checked.published)
    traits = traits_of(account.kind)
    refused = tuple(refusals(traits, reservation, card, now))
    warnings = (*checked.warnings, *losses.warnings(account, read))
    booking = None if refused else booking_of(traits, _REFERENCE, reservation, card)
    return DryRun(account, booking, refused, warnings)


async def rehearsed(tried: DryRun, preview: Preview) -> DryRun:
    """`tried` with the requests that would be sent, or with the obstacle that is sure to prevent them. Calls no PMS."""
    if tried.booking is None:
        return tried
    try:
        rehearsal = await preview.rehearse(connection_to(tried.account), tried.booking)
    except (UnknownKind, BadOptions) as error:
        return replace(tried, refused=(_not_delivered(str(error)),))
    match rehearsal.outcome:
        case Rejected(problem=problem):
            return replace(tried, refused=(replace(problem, request_id=None),))
        case Deferred(detail=detail):
            return replace(tried, refused=(_not_delivered(detail),))
        case _:
            return replace(tried, rehearsal=rehearsal)


def _not_delivered(why: str) -> Problem:
    return endings.DELIVERY_FAILED.problem(
        f"As the account is set now, this would wait, and fail at its deadline. {why}"
    )
