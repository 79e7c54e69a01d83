"""Dry runs of submissions: the requests that the PMS would get, and the refusals of the integration's rules.

Nothing is published or stored, and the Idempotency-Key stays unused. The card stays in memory and is shown masked.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from pydantic_core import from_json

from forwarder.http.messages import HttpRequest
from forwarder.http.query_string import parameters_of
from forwarder.ingress.losses import CallerWarning, connection_to
from forwarder.ingress.message import SubmissionBuilder, card_of, published_form
from forwarder.ingress.problems import implausible
from forwarder.pms.accounts import traits_of
from forwarder.pms.port import BadOptions, Preview, Rehearsal, UnknownKind
from forwarder.reservation.booking import booking_of, refusals
from forwarder.reservation.checks.fields import Reading
from forwarder.reservation.checks.plausibility import Plausibility
from forwarder.reservation.outcome import Deferred, Rejected
from forwarder.reservation.problems import catalogue
from forwarder.reservation.problems.problem import Fault, Problem
from forwarder.tenancy.port import Account

DRY_RUN: Final = "dryRun"
"""The query parameter that requests a dry run."""

_REFERENCE: Final = "the-request-id"
"""Placeholder for the request id, our reference at the PMS: a dry run has none."""


def asks_for_dry_run(request: HttpRequest) -> bool | Problem:
    """Whether the query has `dryRun=true`; the problem if the value is invalid."""
    if not request.scope["query_string"]:
        return False
    given = set(parameters_of(request.scope).get(DRY_RUN, ("false",)))
    if given in ({"true"}, {"false"}):
        return "true" in given
    if len(given) > 1:
        code, detail = "contradictory", "is given more than once, with different values"
    else:
        code, detail = "invalid_value", "must be true or false"
    return catalogue.INVALID_QUERY.problem(f"dryRun {detail}.", faults=(Fault("/dryRun", code, detail),))


@dataclass(frozen=True, slots=True)
class DryRun:
    """The result of a dry run. `refused`: the refusals of all rules, and any other certain obstacle. `rehearsal`: the requests that
    would be sent, None if something is refused."""

    account: Account
    refused: tuple[Problem, ...]
    warnings: tuple[CallerWarning, ...] = ()
    rehearsal: Rehearsal | None = None

    @property
    def success(self) -> bool:
        """Whether it would be accepted."""
        return not self.refused

    def as_json(self) -> dict[str, Any]:
        """`accountPaused`: a submission would wait until the account is resumed."""
        would_send = None
        if self.rehearsal is not None:
            shown = [
                {"method": request.method, "path": request.path, "mediaType": request.media_type, "body": request.body}
                for request in self.rehearsal.requests
            ]
            would_send = {"requests": shown, "assumed": list(self.rehearsal.assumed)}
        return {
            "dryRun": True,
            "accountKind": self.account.kind,
            "accountPaused": self.account.paused,
            "wouldSend": would_send,
            "refusals": [problem.as_json() for problem in self.refused],
            "warnings": [warning.as_json() for warning in self.warnings],
        }


async def dry_run(
    builder: SubmissionBuilder, preview: Preview, account: Account, read: Reading, check: Plausibility, now: datetime
) -> DryRun | Problem:
    """Applies the account's rules to `read`, and adds the requests that would be sent, or the obstacle that is sure to prevent
    them. Or returns the problem that precludes the rules. Calls no PMS."""
    card = card_of(read.request)
    checked = builder.card_text.check(read.request, published_form(read.request, card), account.skipped_checks)
    if problem := implausible(check, read.request) or checked.refused:
        return problem
    reservation, traits = from_json(checked.published), traits_of(account.kind)
    refused = tuple(refusals(traits, reservation, card, now))
    tried = DryRun(account, refused, (*checked.warnings, *builder.losses.warnings(account, read)))
    if refused:
        return tried
    try:
        booking = booking_of(traits, _REFERENCE, reservation, card)
        rehearsal = await preview.rehearse(connection_to(account), booking)
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
    return catalogue.DELIVERY_FAILED.problem(
        f"As the account is set now, this would wait, and fail at its deadline. {why}"
    )
