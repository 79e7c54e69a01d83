"""Checks of what an adapter says when surely nothing was done: for now, or by the PMS's own no."""

import socket
from contextlib import closing
from itertools import chain
from typing import Final

from forwarder.pms.responses.refusals import REFUSALS
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Confirmed, Deferred, InDoubt, Outcome, Rejected
from forwarder_pms_kit.conformance.check import Findings, check
from forwarder_pms_kit.conformance.faults import (
    ASKED_SECONDS,
    NOT_LET_IN,
    NOT_THERE,
    PUT_OFF,
    REDIRECTS,
    before,
    no_that_says,
    say,
)
from forwarder_pms_kit.conformance.site import rival_of
from forwarder_pms_kit.conformance.trial import Misbehaved, NotApplicable, Trial, created_under, exchanges

_ADDRESSES: Final = (
    "nonsense",
    "ftp://pms.example/api",
    "http://[half",
    "http://host:port/",
    "http://no-such-host.invalid/",
)
_NO_HEADER: Final = ("two words", "kľúč", "line\nfeed")
_AT_LEAST: Final = ASKED_SECONDS - 1  # a moment may pass until it is heard
_STATUSES: Final = (400, 402, 409, 422)


@check
async def puts_off_what_was_not_done(trial: Trial) -> Findings:
    """A PMS that throttles (429) and says for how long is asked again then, not before; an account that is not
    let in (401, 403), or asks at a wrong address (404), loses nothing."""
    normal = await trial.normal_push()
    for disruption in before(PUT_OFF):
        for at, _ in exchanges(normal):
            creation = await created_under(disruption, at, normal, trial)
            if creation is None:
                continue
            if wrong := creation.unlike(Deferred):
                yield wrong
                continue
            wait = creation.outcome.retry_after_seconds if isinstance(creation.outcome, Deferred) else None
            if at <= normal.booking_exchange and (wait or 0) < _AT_LEAST:
                yield f"{creation.where} asked for {ASKED_SECONDS} s, and it said {creation.outcome}"
    for disruption in before((*NOT_LET_IN, *NOT_THERE)):
        creation = await created_under(disruption, None, normal, trial)
        if creation is not None and (wrong := creation.unlike(Deferred)):
            yield wrong


@check
async def follows_no_redirect(trial: Trial) -> Findings:
    """A redirect is never followed: nobody knows what is there, and the card and the credential would go there too."""
    normal = await trial.normal_push()
    for disruption in before(REDIRECTS):
        for at in (None, *range(1, len(normal.statuses) + 1)):
            creation = await created_under(disruption, at, normal, trial)
            if creation is not None and (wrong := creation.unlike(Deferred, InDoubt)):
                yield wrong
    if trial.can.find_by_reference:
        for disruption in before(REDIRECTS):
            found = await trial.disrupted(disruption, None, lambda: trial.find(trial.site.booking()))
            if not isinstance(found, Deferred | None):
                yield f"{disruption}: find said {found}"
    if trial.proxy.trapped:
        yield f"redirects were followed {trial.proxy.trapped} times"


@check
async def survives_wrong_settings(trial: Trial) -> Findings:
    """With an address at which no PMS is, or a credential that no header can carry, everything is put off, and nothing raised."""
    with closing(socket.socket()) as nobody:
        nobody.bind(("127.0.0.1", 0))
        refusing = f"http://127.0.0.1:{nobody.getsockname()[1]}/api"
        for base_url in (refusing, *_ADDRESSES):
            outcome = await _asked_with(trial, base_url=base_url)
            if not isinstance(outcome, Deferred):
                yield f"with the base URL {base_url}: create said {outcome}"
    for credential in _NO_HEADER:
        outcome = await _asked_with(trial, credential=credential)
        if not isinstance(outcome, Deferred):
            yield f"with the credential {credential!r}: create said {outcome}"


async def _asked_with(
    trial: Trial, *, base_url: str | None = None, credential: str | None = None
) -> Outcome | Misbehaved:
    trial.proxy.begin()
    try:
        return await trial.create(trial.site.booking(), trial.connect(base_url=base_url, credential=credential))
    except Misbehaved as fault:
        return fault


@check
async def refuses_taken_nights(trial: Trial) -> Findings:
    """Nights that are taken are the PMS's own no, as `room_unavailable`, and nothing is booked."""
    if not trial.site.refuses_taken_nights:
        raise NotApplicable("this site keeps no calendar")
    taken, _ = await trial.made()
    rival = rival_of(taken)
    before_it = await trial.held(rival)
    outcome = await trial.create(rival)
    if (wrong := _not_refused(outcome, rival, "room_unavailable")) is not None:
        yield f"nights that are taken: {wrong}"
    if await trial.held(rival) != before_it:
        yield "nights that are taken were booked twice"


@check
async def refuses_by_its_codes(trial: Trial) -> Findings:
    """Each no that the PMS is known to say has its own code, among those that all adapters share."""
    if not trial.site.refusals:
        raise NotApplicable("this site names no bookings that are refused")
    for code, fields in trial.site.refusals.items():
        booking = trial.site.booking(**fields)
        trial.proxy.begin()
        outcome = await trial.create(booking)
        if (wrong := _not_refused(outcome, booking, code)) is not None:
            yield f"what is refused as {code}: {wrong}"


@check
async def tells_nothing_of_the_guest(trial: Trial) -> Findings:
    """What a PMS says when it refuses is passed on without what it repeats of the guest."""
    normal = await trial.normal_push()
    for status in _STATUSES:
        booking = trial.site.booking()
        secrets = [str(booking.guest[name]) for name in ("name", "email", "phone")]
        said = f"Refused: {', '.join(secrets)}"
        disruption = next(
            before([(f"HTTP {status} that repeats the guest", say(status, no_that_says(said, "pms_refused")))])
        )
        outcome = await trial.disrupted(disruption, normal.booking_exchange, lambda b=booking: trial.create(b))  # type: ignore[misc]
        passed_on = [secret for secret in secrets if secret in str(outcome)]
        if passed_on:
            yield f"{disruption}: it passed on {passed_on}"
        if isinstance(outcome, Confirmed | Misbehaved):
            yield f"{disruption}: it said {outcome}"
        elif isinstance(outcome, Rejected) and (wrong := _not_refused(outcome, booking, None)):
            yield f"{disruption}: {wrong}"


def _not_refused(outcome: Outcome, booking: Booking, code: str | None) -> str | None:
    """What is wrong with it as a refusal, of that code if one is given."""
    if not isinstance(outcome, Rejected):
        return f"it said {outcome}"
    problem = outcome.problem
    faults = chain(
        [f"the code is {problem.code}, not {code}"] if code not in (None, problem.code) else [],
        [f"the code {problem.code} is none of REFUSALS"] if problem.code not in REFUSALS else [],
        ["the problem has no detail"] if not problem.detail.strip() else [],
        [f"the problem is about {problem.request_id}"] if problem.request_id != booking.reference else [],
    )
    return next(faults, None)
