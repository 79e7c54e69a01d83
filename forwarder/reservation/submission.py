"""One accepted submission, as it travels from the ingress to the worker and as it is stored; its identities: request identifiers,
shadow accounts, message keys, fingerprints; and whether it is an earlier one sent again, or only looks like one. Pure.

Request identifiers are unique, sortable by time, derived from the idempotency key if there is one, and authenticated. One is
`rsv_` and 32 characters of base32: 14 bytes that name the submission and a 6-byte MAC (BLAKE2b, RFC 7693) that binds them to one
integration account. A holder of the MAC key can verify, without the store, that this service issued an identifier to that account:
so the status of an accepted submission is never "unknown". One that was not derived from a key also holds the partition of the
requests topic that the submission went to, so that a cancellation can follow it there.

A test key acts in the shadow of the integration account that it names, whose PMS is the simulator. A shadow is an account of its
own: its reservations, keys, request ids and queues never mix with live ones. Its identifier is marked wherever it appears.

Without an Idempotency-Key, two submissions of one account are the same when every field of their bodies is equal and the second
came within the account's window. With a `transactionId` they are the same at any time, when transaction, stay, guest and price are
equal. Two that have an Idempotency-Key each are two. A submission with the stay and the guest of an earlier one, but another body,
is one of its own; both the caller and the property learn about the other one (`similarTo`).
"""

import binascii
import re
import secrets
from base64 import b32decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from hmac import compare_digest
from itertools import count, product
from typing import Any, Final, Literal

from pydantic_core import from_json

from forwarder.reservation.fast import AnyRequest, json_text, value
from forwarder.reservation.outcome import Status
from forwarder.reservation.request import GeneralRequest, Operation, SealedCard

DEFAULT_WINDOW_SECONDS: Final = 300
MAX_WINDOW_SECONDS: Final = 24 * 60 * 60
MAX_SIMILAR: Final = 16  # the maximum number of similar submissions to name
CONFLICTING_BODY: Final = "conflicting_body"  # the outcome of a second body under one idempotency key: it is not made


@value(frozen=True, slots=True)
class NaturalKey:
    """MACs of a submission's content, by which duplicates are recognised. `same`: equal for duplicates: of the whole body or, with
    a transaction, of transaction, stay, guest and price. `stay`: of property, days and guest. Both are None in messages of releases
    before 0.2, which are compared by `key`: of stay, guest, price and transaction. `transaction`: of the `transactionId` alone.
    `window_seconds`: how long a duplicate without one is recognised. `keyed`: it came with an Idempotency-Key."""

    key: str
    transaction: str | None = None
    window_seconds: int = 0
    keyed: bool = False
    same: str | None = None
    stay: str | None = None


MAX_DEADLINE_SECONDS: Final = 7 * 24 * 60 * 60
"""The longest deadline that a caller may request. A shorter one of the account takes precedence."""

POSSIBLE: Final = frozenset({Status.PENDING, Status.IN_DOUBT, Status.CONFIRMED, Status.CANCELLED})
"""Statuses in which a reservation was or may yet be made. A rejected or failed submission may be submitted again."""

_PREFIX = "rsv_"
_NAME_BYTES, _MAC_BYTES = 14, 6
_TIME_BYTES, _PARTITION_BYTES, _MARK_BYTES = 6, 2, 2
_COUNTED_BYTES = _NAME_BYTES - _TIME_BYTES - _PARTITION_BYTES - _MARK_BYTES

_PAIRS: Final = tuple(map("".join, product("abcdefghijklmnopqrstuvwxyz234567", repeat=2)))
"""The base32 text of each 10 bits: writes an identifier in a third of the standard library's time."""
_SHIFTS: Final = tuple(range(8 * (_NAME_BYTES + _MAC_BYTES) - 10, -1, -10))
REQUEST_ID: Final = re.compile(f"{_PREFIX}[a-z2-7]{{32}}")


@value(frozen=True, slots=True)
class Submission:
    """A reservation request that was accepted, and for whom. `reservation` holds the request's own fields, unchanged, with only the
    masked number of a card; the rest of the card is in `card`, sealed. `fingerprint` distinguishes payloads without revealing them.
    `deadline_seconds`: how long after `accepted_at` the caller wants it forwarded, 1 to `MAX_DEADLINE_SECONDS`; None leaves it to
    the account. Not part of the fingerprint: it says how long to try, not what to book. `natural`: recognises it when it is sent
    again without a key; None if it cannot be. `api_key_id`: of its API key; None in messages of releases before 0.2."""

    request_id: str
    workspace_id: str
    account_id: str
    operation: Operation
    accepted_at: datetime
    reservation: Mapping[str, Any]
    fingerprint: str
    card: SealedCard | None = None
    trace: str | None = None
    deadline_seconds: int | None = None
    natural: NaturalKey | None = None
    api_key_id: str | None = None

    @property
    def property_id(self) -> str:
        return str(self.reservation["propertyId"])

    @property
    def room_id(self) -> str:
        """The room's identifier; the property's if the request names no room."""
        room = self.reservation.get("roomId")
        return self.property_id if room is None else str(room)

    @property
    def arrival(self) -> date:
        return date.fromisoformat(self.reservation["arrivalDate"])

    @property
    def departure(self) -> date:
        return date.fromisoformat(self.reservation["departureDate"])

    @property
    def key(self) -> str:
        """The message key: submissions for one property in one account keep their order."""
        return key_of(self.account_id, self.property_id)


# --- request identifiers ---


@dataclass(frozen=True, slots=True)
class RequestIds:
    """Issues and recognises request identifiers, for one thread. `mac_key` (16 to 64 bytes): the same in a whole deployment."""

    mac_key: bytes = field(repr=False)
    # Makes identifiers unique within a process; processes start at random values.
    _counted: Iterator[int] = field(
        default_factory=lambda: count(secrets.randbits(8 * _COUNTED_BYTES)), init=False, repr=False, compare=False
    )

    def issue(self, account_id: str, now: datetime, partition: int | None = None) -> str:
        """A new identifier; later ones sort after earlier ones, to the millisecond. `partition`: of its submission, if known."""
        time = int(now.timestamp() * 1000).to_bytes(_TIME_BYTES, "big")
        if partition is None or partition >> 8 * _PARTITION_BYTES:
            return self._seal(account_id, time + secrets.token_bytes(_NAME_BYTES - _TIME_BYTES))
        number = (next(self._counted) & 0xFFFF_FFFF).to_bytes(_COUNTED_BYTES, "big")
        place = time + number + partition.to_bytes(_PARTITION_BYTES, "big")
        return self._seal(account_id, place + self._mac(b"partition", _MARK_BYTES, account_id, place))

    def partition(self, account_id: str, request_id: str) -> int | None:
        """The partition that a vouched-for identifier holds; None if it holds none. One in 65,536 of those without a partition
        seems to hold one: use it as a hint for where to look first, and never depend on it alone."""
        name = b32decode(request_id[len(_PREFIX) :].upper())[:_NAME_BYTES]
        place, mark = name[:-_MARK_BYTES], name[-_MARK_BYTES:]
        if not compare_digest(mark, self._mac(b"partition", _MARK_BYTES, account_id, place)):
            return None
        return int.from_bytes(place[-_PARTITION_BYTES:], "big")

    def derive(self, account_id: str, idempotency_key: str) -> str:
        """The identifier of this key in this account: always the same, and different from that of another account's key."""
        return self._seal(account_id, self._mac(b"idempotency", _NAME_BYTES, account_id, idempotency_key.encode()))

    def content_key(
        self, account_id: str, purpose: Literal["natural-key", "transaction", "same", "stay"], content: bytes
    ) -> str:
        """A MAC that recognises `content` within `account_id`, as 20 characters. Reveals nothing about it without the MAC key."""
        mac = self._mac(purpose.encode(), 15, account_id, content)
        return binascii.b2a_base64(mac, newline=False).decode()

    def card_mark(self, account_id: str, idempotency_key: str, digits: str) -> bytes:
        """One byte that differs for two cards under one key, but for one pair in 256. Only one byte: a thief of the store and
        the MAC key who knows a masked number and guesses the key still has some 400 candidate numbers."""
        return self._mac(b"card", 1, account_id, idempotency_key.encode() + b"\0" + digits.encode())

    def vouches(self, account_id: str, request_id: str) -> bool:
        """Whether `request_id` was issued to, or derived for, `account_id` with this MAC key."""
        if not REQUEST_ID.fullmatch(request_id):  # one name has one spelling
            return False
        sealed = b32decode(request_id[len(_PREFIX) :].upper())
        mac = self._mac(b"request-id", _MAC_BYTES, account_id, sealed[:_NAME_BYTES])
        return compare_digest(mac, sealed[_NAME_BYTES:])

    def _seal(self, account_id: str, name: bytes) -> str:
        sealed = int.from_bytes(name + self._mac(b"request-id", _MAC_BYTES, account_id, name), "big")
        return _PREFIX + "".join([_PAIRS[sealed >> shift & 1023] for shift in _SHIFTS])

    def _mac(self, purpose: bytes, size: int, account_id: str, content: bytes) -> bytes:
        mac = _keyed(self.mac_key, purpose, size, account_id).copy()
        mac.update(content)
        return mac.digest()


@lru_cache(maxsize=4096)
def _keyed(key: bytes, purpose: bytes, size: int, account_id: str) -> blake2b:
    """A MAC state keyed and fed with the account only: copying one costs half as much as keying it."""
    account = account_id.encode()
    # The length prefix distinguishes account "a" with content "bc" from account "ab" with content "c".
    return blake2b(len(account).to_bytes(4, "big") + account, digest_size=size, key=key, person=purpose)


# --- shadows, keys, fingerprints ---

SHADOW_MARK: Final = "~"  # a character that no account's own identifier may contain
_SHADOW_PREFIX: Final = f"test{SHADOW_MARK}"


def shadow_id(account_id: str) -> str:
    return _SHADOW_PREFIX + account_id


def is_test(account_id: str) -> bool:
    return account_id.startswith(_SHADOW_PREFIX)


def live_account_id(account_id: str) -> str:
    return account_id.removeprefix(_SHADOW_PREFIX)


def key_of(account_id: str, property_id: str | int) -> str:
    """The key of the messages about a property's reservations in that account."""
    return f"{account_id}:{property_id}"


def fingerprint(operation: Operation, reservation: bytes, card_mark: bytes = b"") -> str:
    """A 128-bit BLAKE2b hash of the content. `reservation` is the request in canonical form: equal for equivalent requests, and
    with the card masked, because a hash of a card number can be brute-forced. `card_mark`: see `RequestIds.card_mark`."""
    return blake2b(operation.encode() + card_mark + b"\n" + reservation, digest_size=16).hexdigest()


# --- duplicates ---


@value(frozen=True, slots=True)
class Earlier:
    """An earlier submission, or one that has a row already. `cancel_requested_at`: None also if its cancellation failed."""

    request_id: str
    natural: NaturalKey
    status: Status
    accepted_at: datetime
    cancel_requested_at: datetime | None = None

    def is_repeated_by(self, natural: NaturalKey, accepted_at: datetime) -> bool:
        """Whether a submission accepted at `accepted_at` is this one sent again."""
        keyed = self.natural.keyed and natural.keyed
        if keyed or not self._asks_the_same(natural) or not self.stands(accepted_at):
            return False
        if natural.transaction is not None or self.status in {Status.PENDING, Status.IN_DOUBT}:
            return True
        return abs(accepted_at - self.accepted_at) < timedelta(seconds=natural.window_seconds)

    def is_similar_to(self, natural: NaturalKey, accepted_at: datetime) -> bool:
        """Whether it has the stay and guest of a submission accepted at `accepted_at`, and both may exist."""
        return natural.stay is not None and self.natural.stay == natural.stay and self.stands(accepted_at)

    def replaces(self, failed: NaturalKey, failed_at: datetime) -> bool:
        """Whether a submission that failed at `failed_at` must not be made any more because of this one: it is a duplicate,
        however much later, or it was sent in its place, for the same room, guest and price."""
        if (self.natural.keyed and failed.keyed) or not self.stands(None):
            return False
        return self._asks_the_same(failed) or (self.natural.key == failed.key and self.accepted_at >= failed_at)

    def stands(self, at: datetime | None) -> bool:
        """Whether it could have a reservation `at` that time, for all that the sender of another one knows; None: now."""
        if self.cancel_requested_at is None:
            return self.status in POSSIBLE and self.status is not Status.CANCELLED
        return self.status in POSSIBLE and at is not None and self.cancel_requested_at > at

    def _asks_the_same(self, natural: NaturalKey) -> bool:
        by_same = None not in (self.natural.same, natural.same)
        return self.natural.same == natural.same if by_same else self.natural.key == natural.key


def contents_of(
    operation: Operation, request: AnyRequest, body: bytes, card: bytes
) -> tuple[bytes, bytes, bytes | None]:
    """What of a request is compared, as bytes to hash: stay, guest, price and transaction, as releases before 0.2 compare them,
    without the card; what duplicates share; and property, days and guest, or None if it names no guest. `body`: the request in
    canonical form; `card`: distinguishes its card from others."""
    property_id, transaction = str(request.property_id), transaction_of(request)
    room = property_id if request.room_id is None else str(request.room_id)
    days = f"{request.arrival_date.isoformat()}\0{request.departure_date.isoformat()}"
    given, price, currency = request.guest, request.total_price, request.currency or ""
    # No text of a request has U+0000.
    names = " \0 ".join((given.name or "", given.first_name or "", given.last_name or "", given.email or ""))
    guest = " ".join(names.casefold().split())
    phone = "" if given.phone is None else "".join(str(given.phone).split())
    amount = "" if price is None else str(price.normalize())
    if transaction:
        same = _joined("booking", transaction, property_id, room, days, guest, amount, currency)
    else:
        # The same price in any notation, and the same guest in any spelling of name, address and number.
        fields: dict[str, Any] = from_json(body)
        if amount:
            fields["totalPrice"] = amount
        for name, text in (said := fields.setdefault("guest", {})).items():
            if name == "phone":
                said[name] = "".join(each for each in str(text) if each.isdecimal()).lstrip("0")
            elif name in {"name", "firstName", "lastName", "email"}:
                said[name] = " ".join(text.casefold().split())
        same = _joined("body", operation) + b"\0" + card + b"\0" + json_text(fields)
    return (
        _joined(operation, property_id, room, days, guest, phone, amount, currency, transaction),
        same,
        _joined("stay", property_id, days, guest) if guest.strip("\0 ") else None,
    )


def differing_fields(one: bytes, other: bytes) -> Sequence[str]:
    """The JSON Pointers of the fields in which two requests differ, both as JSON objects."""
    return sorted(_differences("", from_json(one), from_json(other)))


def _differences(pointer: str, one: Any, other: Any) -> Sequence[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        names = one.keys() | other.keys()
        return [each for name in names for each in _differences(f"{pointer}/{name}", one.get(name), other.get(name))]
    return [] if one == other or str(one) == str(other) else [pointer]


def transaction_of(request: AnyRequest) -> str:
    given = None if isinstance(request, GeneralRequest) else request.transaction_id
    return "" if given is None else given.strip()


def _joined(*parts: str) -> bytes:
    return "\0".join(parts).encode()
