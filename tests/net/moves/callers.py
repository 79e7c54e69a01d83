"""What callers do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import to_json

from tests.net.moves.move import Move, one_of
from tests.net.record import Call, Intent, short
from tests.net.world import ACCOUNTS, World

_NAMES: Final = tuple(ACCOUNTS)
_PATH: Final = "/api/v1/vrs/reservations/booking-engine"
_GENERAL: Final = "/api/v1/vrs/reservations"
_BULK: Final = "/api/v1/vrs/reservations/bulk"
_STATUS: Final = "/api/v1/vrs/submissions/"
_ADDRESS: Final = {
    "line1": "Calle Mayor 1",
    "line2": "",
    "postalCode": "28013",
    "city": "Madrid",
    "state": "Madrid",
    "country": "ES",
}
_CARD: Final = {
    "cardNumber": "4111111111111111",
    "cardHolderName": "Ana Ruiz",
    "expiryMonth": "12",
    "expiryYear": "2030",
}
_ACCOUNT: Final = one_of(*_NAMES[:1] * 3, _NAMES[1], _NAMES[2])


def _body(number: int, guest: int, *, notes: str = "", transaction: bool = False) -> Mapping[str, Any]:
    """`number` makes the content its own: it is in the guest's address, which PMSs are sent."""
    return {
        "propertyId": 1000 + guest % 6,
        "roomId": "A",
        "arrivalDate": "2027-06-01",
        "departureDate": "2027-06-05",
        "guest": {
            "name": f"Ana Ruiz {guest}",
            "firstName": "Ana",
            "lastName": f"Ruiz {guest}",
            "email": f"guest-{number}@example.com",
            "address": _ADDRESS,
        },
        "numberOfGuests": 2,
        "numberOfAdults": 2,
        "numberOfChildren": 0,
        "numberOfInfants": 0,
        "numberOfPets": 0,
        "totalPrice": 480.5,
        "currency": "EUR",
        "morChannel": "SELF",
        "status": "CONFIRMED",
        **({"notes": notes} if notes else {}),
        **({"transactionId": f"tx-{number}"} if transaction else {}),
    }


def intend(world: World, account: str, body: Mapping[str, Any], key: str | None) -> Intent:
    """One more thing that a caller wants; or the earlier one, if that asks for the same."""
    content = to_json(body).decode()
    for each in world.record.intents:
        if (each.account, each.content, each.key) == (account, content, key):
            return each
    made = Intent(len(world.record.intents) + 1, account, body, content, key)
    world.record.intents.append(made)
    return made


def send(world: World, intent: Intent, door: int, *, wait: int = 0, lost: bool = False) -> Call:
    """Ask one ingress for it. `lost`: its answer does not arrive."""
    call = Call("submit", world.doors[door].id, intent.account, world.now, intent)
    intent.calls.append(call)
    world.record.calls.append(call)
    how = f"under key {intent.key}" if intent.key else "without a key"
    world.say(f"caller {intent.number}: POST to ingress {door} for {intent.account}, {how}")
    headers = {"idempotency-key": f'"{intent.key}"'} if intent.key else {}
    if wait:
        headers["prefer"] = f"wait={wait}"

    def then(status: int, found: Mapping[str, str], body: Any) -> None:
        if lost:
            world.say(f"caller {intent.number}: the answer {status} is lost")
            return
        assert body.get("code") != "validation_failed", body
        call.ended, call.status, call.headers = world.now, status, found
        call.data = body.get("data") or {} if status < 300 else body
        world.say(f"caller {intent.number}: {status} {short(call.request_id or '')} {body.get('code', '')}")

    world.call(door, intent.account, "POST", _PATH, intent.body, headers, then=then)
    return call


def read(world: World, account: str, request_id: str, door: int, *, as_account: str | None = None) -> Call:
    """Read a status, perhaps as another account's caller."""
    call = Call("read", world.doors[door].id, as_account or account, world.now, target=request_id)
    world.record.calls.append(call)

    def then(status: int, found: Mapping[str, str], body: Any) -> None:
        call.ended, call.status, call.headers = world.now, status, found
        call.data = body.get("data") or {} if status == 200 else body

    world.call(door, as_account or account, "GET", _STATUS + request_id, then=then)
    return call


def cancel(world: World, account: str, request_id: str, door: int) -> Call:
    """Cancel a submission by its id."""
    call = Call("cancel", world.doors[door].id, account, world.now, target=request_id)
    world.record.calls.append(call)
    world.say(f"caller: cancels {short(request_id)} at ingress {door}")

    def then(status: int, found: Mapping[str, str], body: Any) -> None:
        call.ended, call.status, call.headers = world.now, status, found
        call.data = body.get("data") or {} if status < 300 else body
        world.say(f"caller: cancellation of {short(request_id)}: {status} {body.get('code', '')}")

    world.call(door, account, "POST", f"{_GENERAL}/{request_id}/cancel", then=then)
    return call


def _nth(world: World, number: int) -> Intent | None:
    """Counted from the last."""
    intents = world.record.intents
    return intents[-1 - number % len(intents)] if intents else None


@dataclass(frozen=True, slots=True)
class Submit(Move):
    """A new reservation is asked for."""

    account: str = _ACCOUNT
    keyed: bool = one_of(False, True)
    transaction: bool = one_of(False, False, True)
    door: int = one_of(0, 1)
    wait: int = one_of(0, 0, 20)
    lost: bool = one_of(False, False, True)
    more: int = one_of(0, 0, 1, 3)
    card: bool = one_of(False, False, True)

    def happen(self, world: World) -> None:
        for _ in range(1 + self.more):
            number = len(world.record.intents) + 1
            body = _body(number, number, transaction=self.transaction)
            if self.card and world.pmss[self.account].shape == "keyed":
                body = {**body, "cardDetails": _CARD}
            intent = intend(world, self.account, body, f"key-{number}" if self.keyed else None)
            send(world, intent, self.door, wait=self.wait, lost=self.lost)


@dataclass(frozen=True, slots=True)
class SendAgain(Move):
    """The same once more, whatever became of it: the same body under the same key, or without one."""

    nth: int = one_of(0, 0, 1, 2, 4)
    door: int = one_of(0, 1)
    times: int = one_of(1, 1, 2, 5)
    wait: int = one_of(0, 0, 20)

    def happen(self, world: World) -> None:
        intent = _nth(world, self.nth)
        for _ in range(self.times if intent else 0):
            assert intent is not None
            send(world, intent, self.door, wait=self.wait)


@dataclass(frozen=True, slots=True)
class SendAgainLater(Move):
    """The same body under another key: another reservation like it, as for a cart."""

    nth: int = one_of(0, 1)
    door: int = one_of(0, 1)

    def happen(self, world: World) -> None:
        intent = _nth(world, self.nth)
        if intent is not None and intent.key is not None:
            send(world, intend(world, intent.account, intent.body, f"{intent.key}-too"), self.door)


@dataclass(frozen=True, slots=True)
class Cart(Move):
    """Several rooms for one guest: equal ones under keys of their own, or ones that differ in their notes without keys."""

    account: str = _ACCOUNT
    rooms: int = one_of(2, 3, 5)
    keyed: bool = one_of(True, False)
    door: int = one_of(0, 1)
    one_payment: bool = one_of(False, True)

    def happen(self, world: World) -> None:
        number = len(world.record.intents) + 1
        for room in range(self.rooms):
            notes = "" if self.keyed else f"room {room}"
            paid = self.one_payment and self.keyed
            body = _body(number, number, notes=notes, transaction=paid)
            key = f"cart-{number}-{room}" if self.keyed else None
            send(world, intend(world, self.account, body, key), self.door)


@dataclass(frozen=True, slots=True)
class ReuseKey(Move):
    """Another body under a key that was used, or is being used at the other ingress: never to be made."""

    nth: int = one_of(0, 1)
    door: int = one_of(0, 1)
    at_once: bool = one_of(False, True)

    def happen(self, world: World) -> None:
        if self.at_once:
            Submit(keyed=True, door=1 - self.door).happen(world)
        intent = _nth(world, 0 if self.at_once else self.nth)
        if intent is not None and intent.key is not None:
            number = len(world.record.intents) + 1
            body = {**intent.body, "notes": f"other than before: {number}"}
            send(world, intend(world, intent.account, body, intent.key), self.door)


@dataclass(frozen=True, slots=True)
class Bulk(Move):
    """Some at once in one request, perhaps one of them twice."""

    account: str = _ACCOUNT
    count: int = one_of(2, 4)
    keyed: bool = one_of(False, True)
    repeated: bool = one_of(False, True)
    door: int = one_of(0, 1)

    def happen(self, world: World) -> None:
        intents = []
        for _ in range(self.count):
            number = len(world.record.intents) + 1
            key = f"key-{number}" if self.keyed else None
            intents.append(intend(world, self.account, _body(number, number), key))
        if self.repeated and self.keyed:  # without keys, equal items of one bulk are meant as often as they are there
            intents.append(intents[0])
        send_bulk(world, intents, self.door)


def send_bulk(world: World, intents: list[Intent], door: int) -> None:
    """Ask one ingress for all of them in one request."""
    items, calls = [], []
    for intent in intents:
        call = Call("submit", world.doors[door].id, intent.account, world.now, intent)
        intent.calls.append(call)
        world.record.calls.append(call)
        calls.append(call)
        key = {"idempotencyKey": intent.key} if intent.key else {}
        items.append({"operation": "booking-engine", "reservation": intent.body, **key})
    world.say(f"caller: bulk of {len(items)} to ingress {door}")

    def then(status: int, found: Mapping[str, str], body: Any) -> None:
        results = (body.get("data") or {}).get("results") or [{"problem": body}] * len(calls)
        for call, result in zip(calls, results, strict=True):
            problem = result.get("problem")
            call.ended = world.now
            call.status = 202 if problem is None else problem.get("status", status)
            call.data = result if problem is None else problem

    world.call(door, intents[0].account, "POST", _BULK, items, then=then)


@dataclass(frozen=True, slots=True)
class Cancel(Move):
    """A caller takes back what it knows the id of, or some of these."""

    nth: int = one_of(0, 0, 1, 2, 4)
    door: int = one_of(0, 1)
    more: int = one_of(0, 0, 1, 3)

    def happen(self, world: World) -> None:
        for intent in {_nth(world, self.nth + more): None for more in range(1 + self.more)}:
            if intent is not None and intent.request_id is not None:
                cancel(world, intent.account, intent.request_id, self.door)


@dataclass(frozen=True, slots=True)
class CancelAndSendAgain(Move):
    """A caller takes it back, and asks for it again as soon as the cancellation is accepted."""

    nth: int = one_of(0, 1)
    door: int = one_of(0, 1)
    pause: float = one_of(0.0, 0.5, 5.0)

    def happen(self, world: World) -> None:
        intent = _nth(world, self.nth)
        if intent is None or intent.request_id is None:
            return
        asked = cancel(world, intent.account, intent.request_id, self.door)
        world.pass_time(0.3 + self.pause)
        if asked.status is not None and asked.status < 300:
            send(world, intent, self.door)


@dataclass(frozen=True, slots=True)
class Read(Move):
    """Statuses are read, at both doors."""

    nth: int = one_of(0, 1, 3)

    def happen(self, world: World) -> None:
        intent = _nth(world, self.nth)
        if intent is not None and intent.request_id is not None:
            for door in (0, 1):
                read(world, intent.account, intent.request_id, door)


@dataclass(frozen=True, slots=True)
class ReadAsAnother(Move):
    """A caller of another workspace, or of another account, asks for a submission that is not its own."""

    nth: int = one_of(0, 1)

    def happen(self, world: World) -> None:
        intent = _nth(world, self.nth)
        if intent is not None and intent.request_id is not None:
            for other in ACCOUNTS:
                if other != intent.account:
                    read(world, intent.account, intent.request_id, 0, as_account=other)
