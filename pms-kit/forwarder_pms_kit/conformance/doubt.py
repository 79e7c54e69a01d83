"""Checks of an adapter's answers when the PMS's are ambiguous: "never twice" depends on them."""

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Final

from forwarder.pms.port import LOOKS_ALIKE
from forwarder.reservation.outcome import Absent, Cancelled, Confirmed, Deferred, InDoubt, LookupOutcome, Outcome
from forwarder_pms_kit.conformance.check import Findings, check
from forwarder_pms_kit.conformance.faults import LOST, NOT_THERE, UNREADABLE, Disruption, after, before
from forwarder_pms_kit.conformance.trial import Creation, NotApplicable, Trial, created_under, exchanges

WAITS: Final = frozenset({"pms_still_working", LOOKS_ALIKE})
"""A hold that ends by itself, say; and what an operator looks at."""


@check
async def doubts_what_may_be_made(trial: Trial) -> Findings:
    """Where the response to a create was lost or cannot be read, and the reservation was made, it is InDoubt: never put off, and
    never refused. It is then found, or made again by its key, as one reservation."""
    normal = await trial.normal_push()
    for disruption in chain(after(LOST), after(UNREADABLE)):
        for at, _ in exchanges(normal):
            creation = await created_under(disruption, at, normal, trial)
            if creation is None:
                continue
            # Before the exchange that books, nothing was made: to put it off is true.
            if wrong := creation.unlike(Deferred, InDoubt) or await _unsettled(trial, creation):
                yield wrong


async def _unsettled(trial: Trial, creation: Creation) -> str | None:
    """What is wrong once a doubt is resolved as the worker would: by the key, or else by a look-up."""
    trial.proxy.begin()
    if not isinstance(creation.outcome, InDoubt):
        return None
    if trial.can.idempotent_create:
        settled: Outcome | LookupOutcome = await trial.create(creation.booking)
    elif trial.can.find_by_reference:
        settled = await trial.find(creation.booking)
    else:
        return None
    waits = isinstance(settled, Deferred) and settled.reason in WAITS
    if creation.held and not isinstance(settled, Confirmed) and not waits:
        return f"{creation.where}: in doubt, and asked again it came to {settled}, although it was made"
    held = await trial.held(creation.booking)
    return None if held in (0, 1, None) else f"{creation.where}: in doubt, and asked again it is held {held} times"


@check
async def doubts_what_it_cannot_know(trial: Trial) -> Findings:
    """The same where the reservation was not made: once the PMS may have had the request that makes it, only the PMS can say
    so. Before that request, it may be put off; it is never refused."""
    normal = await trial.normal_push()
    for disruption in before(LOST):
        for at, expected in exchanges(normal):
            creation = await created_under(disruption, at, normal, trial)
            if creation is not None and (wrong := creation.unlike(*expected)):
                yield wrong


@check
async def looks_up_truly(trial: Trial) -> Findings:
    """A look-up that did not bring the whole truth is put off: it never says that a reservation is absent which is there."""
    if not trial.can.find_by_reference:
        raise NotApplicable("it does not declare find_by_reference")
    booking, made = await trial.made()
    for disruption in _readings():
        outcome = await trial.disrupted(disruption, None, lambda: trial.find(booking))
        if isinstance(outcome, Confirmed) and outcome.pms_reservation_id == made.pms_reservation_id:
            continue
        if outcome is not None and not isinstance(outcome, Deferred):
            yield f"{disruption}: it said {_told(outcome)} of a reservation that is there"


@check
async def cancels_truly(trial: Trial) -> Findings:
    """Cancelled is said only of what the PMS surely holds no longer; whatever else happens, cancelling is put off."""
    if not trial.can.cancel:
        raise NotApplicable("it does not declare cancel")
    for disruption in _readings():
        booking, made = await trial.made()
        cancelling = partial(trial.cancel, booking, made.pms_reservation_id)
        outcome = await trial.disrupted(disruption, None, cancelling)
        if outcome is None or isinstance(outcome, Deferred):
            continue
        if not isinstance(outcome, Cancelled) or await trial.held(booking) not in (0, None):
            yield f"{disruption}: it said {_told(outcome)} of a reservation that is there"


def _told(outcome: object) -> str:
    return "Absent" if isinstance(outcome, Absent) else str(outcome)


def _readings() -> Sequence[Disruption]:
    return (*before(LOST), *after(LOST), *before(NOT_THERE), *after(UNREADABLE))
