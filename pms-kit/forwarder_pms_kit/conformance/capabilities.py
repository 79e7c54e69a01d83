"""Checks that an adapter is what it declares: its options, what it can do, and amounts to the last decimal."""

import asyncio
import re
from dataclasses import replace
from decimal import Decimal
from typing import Final

from pydantic_core import PydanticSerializationError, to_json

from forwarder.pms.fields import SentAs
from forwarder.pms.port import BadOptions
from forwarder.pms.registry import check_options, lacks
from forwarder.pms.responses import record_fields
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Absent, Cancelled, Confirmed, Deferred, InDoubt, Outcome, Rejected
from forwarder_pms_kit.conformance.site import rival_of
from forwarder_pms_kit.conformance.trial import Findings, NotApplicable, Trial, check, looks_alike

_AT_ONCE = 100
_AT_ONCE_ELSEWHERE = 3  # where the PMS is somebody's, and limits requests
_OF_ONE = 4


@check
async def makes_reservations(trial: Trial) -> Findings:
    """A reservation is made once, with the PMS's id, and with a record whose fields are those of the service."""
    booking, confirmed = await trial.made()
    if not confirmed.pms_reservation_id or not isinstance(confirmed.pms_reservation_id, str):
        yield f"the id of the reservation is {confirmed.pms_reservation_id!r}"
    if await trial.held(booking) not in (1, None):
        yield f"create said Confirmed, and the PMS holds {await trial.held(booking)} reservations of that reference"
    strange = {name for name in confirmed.record if name not in record_fields(confirmed.record)}
    if strange:
        yield f"the record has fields that are not well formed, or not of a record: {', '.join(sorted(strange))}"
    try:
        to_json(confirmed.record)
    except PydanticSerializationError as error:
        yield f"the record is not JSON: {error}"


@check
async def makes_many_at_once(trial: Trial) -> Findings:
    """Pushes of different reservations may be under way at once, and each is its own."""
    count = _AT_ONCE if not trial.site.seconds_between else _AT_ONCE_ELSEWHERE
    bookings = [trial.site.booking() for _ in range(count)]
    outcomes = await asyncio.gather(*(trial.create(booking) for booking in bookings))
    lost = [outcome for outcome in outcomes if not isinstance(outcome, Confirmed)]
    if lost:
        yield f"of {count} at once, {len(lost)} were not confirmed; the first: {lost[0]}"
    ids = {outcome.pms_reservation_id for outcome in outcomes if isinstance(outcome, Confirmed)}
    if len(ids) + len(lost) != count:
        yield f"{count} reservations were given {len(ids)} ids"


@check
async def creates_idempotently(trial: Trial) -> Findings:
    """Where `idempotent_create` is declared, one reference makes one reservation: again, from elsewhere, and at once."""
    if not trial.can.idempotent_create:
        raise NotApplicable("it does not declare idempotent_create")
    booking, first = await trial.made()
    elsewhere = trial.connect()
    for who, again in (("again", await trial.create(booking)), ("elsewhere", await trial.create(booking, elsewhere))):
        if not isinstance(again, Confirmed) or again.pms_reservation_id != first.pms_reservation_id:
            yield f"the same booking {who} came to {again}, where it is {first.pms_reservation_id} already"
    if await trial.held(booking) not in (1, None):
        yield f"one booking asked for three times is held {await trial.held(booking)} times"
    at_once = trial.site.booking()
    outcomes = await asyncio.gather(*(trial.create(at_once) for _ in range(_OF_ONE)))
    ids = {outcome.pms_reservation_id for outcome in outcomes if isinstance(outcome, Confirmed)}
    if len(ids) != 1 or any(isinstance(outcome, Rejected) for outcome in outcomes):
        yield f"one booking asked for {_OF_ONE} times at once came to {[str(outcome) for outcome in outcomes]}"
    if await trial.held(at_once) not in (1, None):
        yield f"one booking asked for {_OF_ONE} times at once is held {await trial.held(at_once)} times"


@check
async def finds_by_reference(trial: Trial) -> Findings:
    """Where `find_by_reference` is declared, what is there is found under its id, and what is not there is Absent; by stay, what is
    there is said to look alike, and never confirmed."""
    if not trial.can.find_by_reference:
        raise NotApplicable("it does not declare find_by_reference")
    trial.proxy.begin()
    never = trial.site.booking()
    found = await trial.find(never)
    if not trial.can.proves_absence and not isinstance(found, Deferred):
        yield f"what is not found is no proof, and a reference that nobody used is {found}"
    elif trial.can.proves_absence and found != Absent():
        yield f"a reference that nobody used is not Absent but {found}"
    booking, made = await trial.made()
    for who, pms in (("", trial.pms), (" from elsewhere", trial.connect())):
        found = await trial.find(booking, pms)
        if trial.can.finds_by_stay:
            if not looks_alike(found):
                yield f"looked for{who}, what is there is not said to look alike, but is {found}"
            continue
        if not isinstance(found, Confirmed) or found.pms_reservation_id != made.pms_reservation_id:
            yield f"looked for{who}, reservation {made.pms_reservation_id} is {found}"
    by_reference = trial.can.proves_absence and not trial.can.finds_by_stay
    if by_reference and (found := await trial.find(rival_of(booking))) != Absent():
        yield f"another reference, of the same nights, is not Absent but {found}"
    if await trial.held(booking) not in (1, None):
        yield "looking for a reservation changed it"


@check
async def cancels(trial: Trial) -> Findings:
    """Where `cancel` is declared, a reservation is cancelled, again and again, is found no more, and its nights are free."""
    if not trial.can.cancel:
        raise NotApplicable("it does not declare cancel")
    booking, made = await trial.made()
    for time in ("", " a second time"):
        if (outcome := await trial.cancel(replace(booking, card=None), made.pms_reservation_id)) != Cancelled():
            yield f"cancelled{time}, it came to {outcome}"
    if await trial.held(booking) not in (0, None):
        yield "cancel said Cancelled, and the PMS holds the reservation as before"
    if trial.can.find_by_reference and isinstance(found := await trial.find(booking), Confirmed):
        yield f"what was cancelled is found as {found}"
    again = await trial.create(rival_of(booking))
    if not isinstance(again, Confirmed):
        yield f"the nights of what was cancelled are not free: {again}"


@check
async def creates_batches(trial: Trial) -> Findings:
    """Where `max_per_create` is more than 1, each of a batch has its own outcome, in the order in which they were asked for."""
    if trial.can.max_per_create == 1:
        raise NotApplicable("it takes one at a time")
    taken, _ = await trial.made()
    size = min(trial.can.max_per_create, 4)
    batch = [trial.site.booking() for _ in range(size - 1)]
    batch.insert(1, rival_of(taken))
    trial.will_ask(*batch)
    outcomes = await trial.run(trial.pms.create_many(batch), "create_many")
    if len(outcomes) != size:
        yield f"{size} bookings came to {len(outcomes)} outcomes"
        return
    for number, (booking, outcome) in enumerate(zip(batch, outcomes, strict=True)):
        if (finding := await _batched(trial, booking, outcome)) is not None:
            yield f"of the batch, number {number} {finding}"
    if trial.site.refuses_taken_nights and not isinstance(outcomes[1], Rejected):
        yield f"nights that were taken came to {outcomes[1]}, among others that were free"


async def _batched(trial: Trial, booking: Booking, outcome: Outcome) -> str | None:
    held = await trial.held(booking)
    match outcome:
        case Confirmed():
            found = await trial.find(booking) if trial.can.find_by_reference else outcome
            if held == 0 or not isinstance(found, Confirmed) or found.pms_reservation_id != outcome.pms_reservation_id:
                return f"is Confirmed as {outcome.pms_reservation_id}, and is {found}"
        case Rejected():
            return f"is {outcome}, and the PMS holds it" if held else None
        case Deferred() | InDoubt():
            return f"came to {outcome}, with nothing in its way"
    return None


_NO_OPTION: Final = "noSuchOption"
_MOMENT_SECONDS: Final = 0.05
_SECRET: Final = "a-secret-in-the-wrong-place"  # noqa: S105 - a planted one


@check
async def describes_its_options(trial: Trial) -> Findings:
    """Each option has a description and a name in camel case; one that is unknown is refused by name, and never quoted."""
    if lacking := lacks(trial.adapter):
        yield f"it is not the class of an adapter: {lacking}"
        return
    schema = trial.adapter.options.model_json_schema(by_alias=True)
    for name, option in schema.get("properties", {}).items():
        if not str(option.get("description", "")).strip():
            yield f"option {name} has no description"
        if "_" in name or name[:1].isupper():
            yield f"option {name} is not in camel case"
    check_options(trial.kind, trial.options, trial.registry)
    try:
        check_options(trial.kind, {**trial.options, _NO_OPTION: _SECRET}, trial.registry)
    except BadOptions as refused:
        if _SECRET in str(refused):
            yield "what is refused of the options is quoted, and may be a secret"
    else:
        yield "an option that it does not have is not refused: extend NoOptions, which forbids them"


@check
async def opens_nothing_by_itself(trial: Trial) -> Findings:
    """Connecting asks the PMS nothing: an account costs nothing until a reservation comes for it."""
    trial.proxy.begin()
    taken = trial.proxy.connections
    kept = trial.connect()
    await asyncio.sleep(_MOMENT_SECONDS)
    if trial.proxy.exchanges or trial.proxy.connections > taken:
        yield f"making {type(kept).__name__} asked the PMS something"


_AMOUNTS: Final = tuple(
    map(Decimal, ("1.15", "8.20", "450.35", "1234567.89", "999999999.99", "1000000", "16.35", "0.29"))
)
"""Among them such as binary fractions, and multiplying them, get wrong."""

_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_NOISE: Final = re.compile(r"\d+\.\d{6,}")
_HUNDREDTHS: Final = 100


@check
async def keeps_amounts_exact(trial: Trial) -> Findings:
    """Amounts are decimal: what a PMS is told, and what a record says, is exactly what was asked for."""
    if not isinstance(trial.fields.fates.get("totalPrice"), SentAs):
        raise NotApplicable("the PMS is told no amount: it sets its own")
    sent_as: dict[Decimal, bool] = {}
    findings: list[str] = []
    for amount in _AMOUNTS:
        _, made = await trial.made(price=amount)
        sent = " ".join(each.body.decode("latin-1") + " " + each.target for each in trial.proxy.exchanges)
        sent_as[amount] = not {amount, amount * _HUNDREDTHS}.isdisjoint(map(Decimal, _NUMBER.findall(sent)))
        findings += [f"{amount} was sent as {noise[0]}" for noise in _NOISE.finditer(sent)]
        findings += [f"{amount} came back as {noise[0]}" for noise in _NOISE.finditer(repr(made.record))]
        finances = made.record.get("finances") or {}
        prices = {"totalPrice": made.record.get("totalPrice"), "finances.totalPrice": finances.get("totalPrice")}
        findings += [
            f"{amount} came back as {name} {price!r}"
            for name, price in prices.items()
            if price is not None and Decimal(str(price)) != amount
        ]
    if not any(sent_as.values()):
        raise NotApplicable("the PMS was told none of the amounts: it quotes its own")
    missing = [f"{amount} was sent neither as {amount} nor in hundredths" for amount, was in sent_as.items() if not was]
    for finding in [*missing, *findings]:
        yield finding
