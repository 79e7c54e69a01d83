"""Checks of how an adapter behaves in the house: within its time, at its pace, cancelled cleanly, leaving nothing open."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import Any, Final

from forwarder.pms.registry import limits_of
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Cancelled, Confirmed, Deferred
from forwarder_pms_kit.conformance.faults import LOST, SLOW, Again, Break, Disruption, Instead, after, before, of_body
from forwarder_pms_kit.conformance.proxy import faulty_proxy
from forwarder_pms_kit.conformance.trial import (
    GRACE_SECONDS,
    SHORT_SECONDS,
    Findings,
    Trial,
    check,
    creations,
)

_SETTLING_SECONDS: Final = 5.0
_IDLE_SECONDS: Final = 10.0  # idle connections end by themselves, after `Connections.idle_seconds`
_LOOK_EVERY_SECONDS: Final = 0.02
_PUSHES: Final = 10
_LATER: Final = (0.0, 0.004, 0.02)
"""After how many seconds a second answer comes."""


@check
async def keeps_its_time(trial: Trial) -> Findings:
    """A PMS that hangs, or answers in drips, holds a push for its time-out and no longer: then a create is in doubt, a look-up
    and a cancellation are put off."""
    async for creation in creations(trial, (*before(SLOW), *after(SLOW)), pms=trial.impatient):
        if wrong := _late(creation.seconds) or creation.unlike(*creation.expected):
            yield f"{creation.where}: {wrong}"
    booking, made = await trial.made()
    asked: dict[str, Callable[[], Awaitable[Any]]] = {}
    if trial.can.find_by_reference:
        asked["find"] = lambda: trial.find(booking, trial.impatient)
    if trial.can.cancel:
        asked["cancel"] = lambda: trial.cancel(booking, made.pms_reservation_id, trial.impatient)
    for operation, ask in asked.items():
        began = time.monotonic()
        outcome = await trial.disrupted(next(before(SLOW)), None, ask)
        if late := _late(time.monotonic() - began):
            yield f"{operation}: {late}"
        if not isinstance(outcome, Deferred | None) and not (isinstance(outcome, Cancelled) and operation == "cancel"):
            yield f"{operation} that hangs said {outcome}"


def _late(took: float) -> str | None:
    return f"it took {took:.1f} s of {SHORT_SECONDS} s" if took > SHORT_SECONDS + GRACE_SECONDS else None


@check
async def can_be_cancelled(trial: Trial) -> Findings:
    """A push that is cancelled in the middle of any exchange ends at once with `CancelledError`, leaves no task behind, and the
    same account continues; the cancelled reservation is made once in the end."""
    normal = await trial.normal_push()
    for delivered in (False, True):
        for at in range(1, len(normal.exchanges) + 1):
            async for finding in _cancelled(trial, Disruption("cancelled", Break("silence"), delivered), at):
                yield f"{'after' if delivered else 'before'} the PMS had exchange {at}: {finding}"


async def _cancelled(trial: Trial, disruption: Disruption, at: int) -> Findings:
    booking, before_it = trial.site.booking(), set(asyncio.all_tasks())
    trial.will_ask(booking)
    trial.proxy.begin(disruption, at)
    push = asyncio.create_task(trial.pms.create(booking))
    met = asyncio.create_task(trial.proxy.met.wait())
    await asyncio.wait([push, met], return_when=asyncio.FIRST_COMPLETED, timeout=_SETTLING_SECONDS)
    met.cancel()
    if push.done():
        yield f"it had ended already, with {push.exception() or push.result()}"
        return
    push.cancel()
    await asyncio.wait([push], timeout=_SETTLING_SECONDS)
    if not push.cancelled():
        yield f"it went on, and {'did not end' if not push.done() else 'said ' + str(push.exception() or push.result())}"
    left = await _settled(
        lambda: [task for task in asyncio.all_tasks() - before_it - trial.proxy.tasks if not task.done()]
    )
    if left:
        yield f"it left behind {left}"
    await trial.made()
    if trial.can.idempotent_create and not isinstance(outcome := await trial.create(booking), Confirmed):
        yield f"asked for again, it came to {outcome}"
    if await trial.held(booking) not in (0, 1, None):
        yield "it is held more than once"


@check
async def takes_no_answer_of_another(trial: Trial) -> Findings:
    """A PMS that answers each request a second time, a little later, or whose answers are off by one, makes no reservation look
    like another. Nor does one that answers with what it said of another, or with another's reference, where it names ours."""
    _, first = await trial.made()
    said = [each.response for each in trial.proxy.exchanges if each.response is not None]
    if first.named:
        for at, response in enumerate(said, start=1):
            others = Disruption("another's answer", Instead(lambda _, said=response: said), delivered=True)  # type: ignore[misc]
            outcome = await trial.disrupted(others, at, partial(trial.create, trial.site.booking()))
            if isinstance(outcome, Confirmed) and outcome.pms_reservation_id == first.pms_reservation_id:
                yield f"it was confirmed with another's answer in exchange {at}"
        booking = trial.site.booking()
        ours = trial.sent_reference(booking).encode()
        renamed = of_body(lambda body: body.replace(ours, ours[:-4] + b"else"))
        elsewhere = Disruption("another's reference", renamed, delivered=True)
        outcome = await trial.disrupted(elsewhere, None, partial(trial.create, booking))
        if isinstance(outcome, Confirmed):
            yield "it was confirmed with an answer that names another reference"
    async for finding in _out_of_step(trial):
        yield finding
    pms_ids: dict[str, Booking] = {}
    for seconds in _LATER:
        for _ in range(_PUSHES):
            booking = trial.site.booking()
            outcome = await trial.disrupted(
                Disruption("a second answer", Again(seconds), delivered=True), None, partial(trial.create, booking)
            )
            if (
                isinstance(outcome, Confirmed)
                and pms_ids.setdefault(outcome.pms_reservation_id, booking) is not booking
            ):
                yield f"with a second answer after {seconds} s two were confirmed as {outcome.pms_reservation_id}"


async def _out_of_step(trial: Trial) -> Findings:
    """One answer comes twice, so that each that follows on its connection is the answer to the request before."""
    pms_ids: dict[str, Booking] = {}
    trial.proxy.begin(Disruption("answers off by one", Again(0.0), delivered=True), at=1)
    for _ in range(_PUSHES):
        booking = trial.site.booking()
        outcome = await trial.create(booking)
        if isinstance(outcome, Confirmed) and pms_ids.setdefault(outcome.pms_reservation_id, booking) is not booking:
            yield f"with answers off by one two were confirmed as {outcome.pms_reservation_id}"


@check
async def leaves_nothing_open(trial: Trial) -> Findings:
    """Connections are used again, where answers name our reference, and given back, whatever became of the exchanges on them; soon
    after the directory was closed none is open."""
    async with faulty_proxy(trial.site.base_url, trial.site.trust()) as proxy:
        own = trial.beside(proxy)
        async with own.directory(1.0) as directory:
            pms = own.connect(directory=directory)
            created = [await own.create(own.site.booking(), pms) for _ in range(_PUSHES)]
            kept = all(isinstance(each, Confirmed) and each.named for each in created)
            if (
                kept
                and limits_of(trial.adapter, trial.options).requests_per_push == 1
                and proxy.connections > _PUSHES // 2
            ):
                yield f"{_PUSHES} pushes, one after the other, opened {proxy.connections} connections"
            for disruption in (*after(LOST), next(after(SLOW))):
                await own.disrupted(disruption, None, lambda: own.create(own.site.booking(), pms))
        if left := await _settled(lambda: proxy.open_connections, _IDLE_SECONDS):
            yield f"{left} of {proxy.connections} connections are open after the directory was closed"


@check
async def minds_the_pace(trial: Trial) -> Findings:
    """Every request goes out through `send`, so that it is counted against the account's budget; and a push of an account without
    options makes as many as `limits` say."""
    limits = trial.adapter.limits
    if limits.requests_per_push < 1 or any(limit.requests < 1 or limit.seconds <= 0 for limit in limits.each):
        yield f"the limits make no sense: {limits}"
    await trial.made()
    pace = _Counted()
    trial.proxy.begin()
    outcome = await trial.create(trial.site.booking(), trial.connect(pace=pace))
    if pace.requests != len(trial.proxy.exchanges):
        yield f"the PMS was asked {len(trial.proxy.exchanges)} times, and {pace.requests} of them went through `send`"
    plain = isinstance(outcome, Confirmed) and not trial.site.options  # with which a push may be longer or shorter
    if plain and pace.requests != limits.requests_per_push:
        yield f"a push made {pace.requests} requests, where requests_per_push is {limits.requests_per_push}"


@check
async def stops_when_told(trial: Trial) -> Findings:
    """A push that loses its right to send sends nothing more, whichever request was next: what is not made by then is put off, and
    what is made is not."""
    normal = await trial.normal_push()
    for allowed in range(len(normal.exchanges)):
        booking, asked = trial.site.booking(), count()
        trial.proxy.begin()
        held_on = trial.pms.while_held(lambda allowed=allowed, asked=asked: next(asked) < allowed)  # type: ignore[misc]
        outcome = await trial.create(booking, held_on)
        sent, held = len(trial.proxy.exchanges), await trial.held(booking)
        if sent > allowed:
            yield f"allowed {allowed} requests, it sent {sent}"
        if held != 0 and isinstance(outcome, Deferred):
            yield f"stopped after request {allowed}, it is held, and create said {outcome}"
        if held == 0 and not isinstance(outcome, Deferred):
            yield f"stopped after request {allowed}, it is not held, and create said {outcome}"


class _Counted:
    def __init__(self) -> None:
        self.requests = 0

    def requested(self) -> None:
        self.requests += 1

    def hold_off(self, seconds: float) -> None:
        pass


async def _settled(left: Callable[[], Any], seconds: float = _SETTLING_SECONDS) -> Any:
    for _ in range(round(seconds / _LOOK_EVERY_SECONDS)):
        if not left():
            break
        await asyncio.sleep(_LOOK_EVERY_SECONDS)
    return left()
