"""Checks of what an adapter says of the PMS's answers: when surely nothing was done, for now or by the PMS's own no; and when they
are ambiguous, on which "never twice" depends."""

import socket
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Final

from forwarder.pms import sdk
from forwarder.pms.port import LOOKS_ALIKE
from forwarder_pms_kit.conformance.faults import (
    ASKED_SECONDS,
    LOST,
    NOT_LET_IN,
    NOT_THERE,
    PUT_OFF,
    REDIRECTS,
    UNREADABLE,
    Disruption,
    after,
    before,
    no_that_says,
    say,
)
from forwarder_pms_kit.conformance.site import rival_of
from forwarder_pms_kit.conformance.trial import (
    Creation,
    Findings,
    Misbehaved,
    NotApplicable,
    Trial,
    check,
    creations,
)

WAITS: Final = frozenset({"pms_still_working", LOOKS_ALIKE})
"""A hold that ends by itself, say; and what an operator looks at."""

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
    async for creation in creations(trial, before(PUT_OFF)):
        wait = creation.outcome.retry_after_seconds if isinstance(creation.outcome, sdk.Deferred) else None
        if wrong := creation.unlike(sdk.Deferred):
            yield wrong
        elif creation.before_booking and (wait or 0) < _AT_LEAST:
            yield f"{creation.where} asked for {ASKED_SECONDS} s, and it said {creation.outcome}"
    async for creation in creations(trial, before((*NOT_LET_IN, *NOT_THERE)), [None]):
        if wrong := creation.unlike(sdk.Deferred):
            yield wrong


@check
async def follows_no_redirect(trial: Trial) -> Findings:
    """A redirect is never followed: nobody knows what is there, and the card and the credential would go there too."""
    for places in ([None], None):
        async for creation in creations(trial, before(REDIRECTS), places):
            if wrong := creation.unlike(sdk.Deferred, sdk.InDoubt):
                yield wrong
    if trial.can.find_by_reference:
        for disruption in before(REDIRECTS):
            found = await trial.disrupted(disruption, None, lambda: trial.find(trial.site.booking()))
            if not isinstance(found, sdk.Deferred | None):
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
            if not isinstance(outcome, sdk.Deferred):
                yield f"with the base URL {base_url}: create said {outcome}"
    for credential in _NO_HEADER:
        outcome = await _asked_with(trial, credential=credential)
        if not isinstance(outcome, sdk.Deferred):
            yield f"with the credential {credential!r}: create said {outcome}"


async def _asked_with(
    trial: Trial, *, base_url: str | None = None, credential: str | None = None
) -> sdk.Outcome | Misbehaved:
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
        if isinstance(outcome, sdk.Confirmed | Misbehaved):
            yield f"{disruption}: it said {outcome}"
        elif isinstance(outcome, sdk.Rejected) and (wrong := _not_refused(outcome, booking, None)):
            yield f"{disruption}: {wrong}"


def _not_refused(outcome: sdk.Outcome, booking: sdk.Booking, code: str | None) -> str | None:
    """What is wrong with it as a refusal, of that code if one is given."""
    if not isinstance(outcome, sdk.Rejected):
        return f"it said {outcome}"
    problem = outcome.problem
    faults = chain(
        [f"the code is {problem.code}, not {code}"] if code not in (None, problem.code) else [],
        [f"the code {problem.code} is none of REFUSALS"] if problem.code not in sdk.REFUSALS else [],
        ["the problem has no detail"] if not problem.detail.strip() else [],
        [f"the problem is about {problem.request_id}"] if problem.request_id != booking.reference else [],
    )
    return next(faults, None)


# --- where it cannot be known ---


@check
async def doubts_what_may_be_made(trial: Trial) -> Findings:
    """Where the response to a create was lost or cannot be read, and the reservation was made, it is InDoubt: never put off, and
    never refused. It is then found, or made again by its key, as one reservation."""
    async for creation in creations(trial, after((*LOST, *UNREADABLE))):
        # Before the exchange that books, nothing was made: to put it off is true.
        if wrong := creation.unlike(sdk.Deferred, sdk.InDoubt) or await _unsettled(trial, creation):
            yield wrong


async def _unsettled(trial: Trial, creation: Creation) -> str | None:
    """What is wrong once a doubt is resolved as the worker would: by the key, or else by a look-up."""
    trial.proxy.begin()
    if not isinstance(creation.outcome, sdk.InDoubt):
        return None
    if trial.can.idempotent_create:
        settled: sdk.Outcome | sdk.LookupOutcome = await trial.create(creation.booking)
    elif trial.can.find_by_reference:
        settled = await trial.find(creation.booking)
    else:
        return None
    waits = isinstance(settled, sdk.Deferred) and settled.reason in WAITS
    if creation.held and not isinstance(settled, sdk.Confirmed) and not waits:
        return f"{creation.where}: in doubt, and asked again it came to {settled}, although it was made"
    held = await trial.held(creation.booking)
    return None if held in (0, 1, None) else f"{creation.where}: in doubt, and asked again it is held {held} times"


@check
async def doubts_what_it_cannot_know(trial: Trial) -> Findings:
    """The same where the reservation was not made: once the PMS may have had the request that makes it, only the PMS can say
    so. Before that request, it may be put off; it is never refused."""
    async for creation in creations(trial, before(LOST)):
        if wrong := creation.unlike(*creation.expected):
            yield wrong


@check
async def looks_up_truly(trial: Trial) -> Findings:
    """A look-up that did not bring the whole truth is put off: it never says that a reservation is absent which is there."""
    if not trial.can.find_by_reference:
        raise NotApplicable("it does not declare find_by_reference")
    booking, made = await trial.made()
    for disruption in _readings():
        outcome = await trial.disrupted(disruption, None, lambda: trial.find(booking))
        if isinstance(outcome, sdk.Confirmed) and outcome.pms_reservation_id == made.pms_reservation_id:
            continue
        if outcome is not None and not isinstance(outcome, sdk.Deferred):
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
        if outcome is None or isinstance(outcome, sdk.Deferred):
            continue
        if not isinstance(outcome, sdk.Cancelled) or await trial.held(booking) not in (0, None):
            yield f"{disruption}: it said {_told(outcome)} of a reservation that is there"


def _told(outcome: object) -> str:
    return "Absent" if isinstance(outcome, sdk.Absent) else str(outcome)


def _readings() -> Sequence[Disruption]:
    return (*before(LOST), *after(LOST), *before(NOT_THERE), *after(UNREADABLE))
