"""One accepted submission, as it travels from the ingress to the worker and as it is stored; and its identities: request
identifiers, shadow accounts, message keys, fingerprints, and references at PMSs.

Request identifiers are unique, sortable by time, derived from the idempotency key if there is one, and authenticated. One is
`rsv_` and 32 characters of base32: 14 bytes that name the submission and a 6-byte MAC (BLAKE2b, RFC 7693) that binds them to one
integration account. A holder of the MAC key can verify, without the store, that this service issued an identifier to that account:
so the status of an accepted submission is never "unknown". An identifier that was not derived from a key also holds the partition
of the requests topic that the submission went to, so that a cancellation can follow it there.

A test key acts in the shadow of the integration account that it names, whose PMS is the simulator. A shadow is an account of its
own: its reservations, idempotency keys, request ids, account queues and message keys never mix with live ones. Its identifier
is marked wherever it appears.
"""

import binascii
import re
import secrets
from base64 import b32decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import lru_cache
from hashlib import blake2b
from hmac import compare_digest
from html import unescape
from itertools import count
from typing import Any, Final, Literal
from unicodedata import combining, normalize
from urllib.parse import unquote

from forwarder.reservation.duplicates import NaturalKey
from forwarder.reservation.request import Operation, SealedCard
from forwarder.reservation.value import value

MAX_DEADLINE_SECONDS: Final = 7 * 24 * 60 * 60
"""The longest deadline that a caller may request. A shorter one of the account takes precedence."""

_PREFIX = "rsv_"
_NAME_BYTES, _MAC_BYTES = 14, 6
_TIME_BYTES, _PARTITION_BYTES, _MARK_BYTES = 6, 2, 2
_NATURAL_BYTES = 15
_CARD_MARK_BYTES = 1
_COUNTED_BYTES = _NAME_BYTES - _TIME_BYTES - _PARTITION_BYTES - _MARK_BYTES

_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"
_PAIRS: Final = tuple(first + second for first in _ALPHABET for second in _ALPHABET)
"""The base32 text of each 10 bits: writes an identifier in a third of the standard library's time."""
_SHIFTS: Final = tuple(range(8 * (_NAME_BYTES + _MAC_BYTES) - 10, -1, -10))

_FORM: Final = re.compile(f"{_PREFIX}[a-z2-7]{{32}}")


@value(frozen=True, slots=True)
class Submission:
    """A reservation request that was accepted, and for whom.

    `reservation` holds the request's own fields, unchanged, with only the masked number of a card; the rest of the card is in
    `card`, sealed. `fingerprint` distinguishes payloads without revealing them. `deadline_seconds`: how long after
    `accepted_at` the caller wants it forwarded, 1 to `MAX_DEADLINE_SECONDS`; None leaves it to the account. Not part of the
    fingerprint: it says how long to try, not what to book. `natural`: recognises it when it is sent again without a key; None
    if it cannot be. `api_key_id`: of the key that it was submitted with; None in messages of releases before 0.2.
    """

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


def _named_by(request_id: str) -> bytes:
    """The bytes of an identifier of the right form."""
    return b32decode(request_id[len(_PREFIX) :].upper())


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
        name = _named_by(request_id)[:_NAME_BYTES]
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
        mac = self._mac(purpose.encode(), _NATURAL_BYTES, account_id, content)
        return binascii.b2a_base64(mac, newline=False).decode()

    def transaction_key(self, account_id: str, transaction_id: str) -> str:
        """As `content_key`, for a transaction."""
        return self.content_key(account_id, "transaction", transaction_id.encode())

    def card_mark(self, account_id: str, idempotency_key: str, digits: str) -> bytes:
        """One byte that differs for two cards under one key, but for one pair in 256. Only one byte: a thief of the store and
        the MAC key who knows a masked number and guesses the key still has some 400 candidate numbers."""
        content = idempotency_key.encode() + b"\0" + digits.encode()
        return self._mac(b"card", _CARD_MARK_BYTES, account_id, content)

    def vouches(self, account_id: str, request_id: str) -> bool:
        """Whether `request_id` was issued to, or derived for, `account_id` with this MAC key."""
        if not _FORM.fullmatch(request_id):  # one name has one spelling
            return False
        sealed = _named_by(request_id)
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
    """The identifier of an account's shadow."""
    return _SHADOW_PREFIX + account_id


def is_test(account_id: str) -> bool:
    """Whether an identifier is a shadow's."""
    return account_id.startswith(_SHADOW_PREFIX)


def live_account_id(account_id: str) -> str:
    """The account whose shadow it is."""
    return account_id.removeprefix(_SHADOW_PREFIX)


def key_of(account_id: str, property_id: str | int) -> str:
    """The key of the messages about a property's reservations in that account."""
    return f"{account_id}:{property_id}"


def fingerprint(operation: Operation, reservation: bytes, card_mark: bytes = b"") -> str:
    """A 128-bit BLAKE2b hash of the content. `reservation` is the request in canonical form: equal for equivalent requests, and
    with the card masked, because a hash of a card number can be brute-forced. `card_mark`: see `RequestIds.card_mark`."""
    return blake2b(operation.encode() + card_mark + b"\n" + reservation, digest_size=16).hexdigest()


# --- our reference at a PMS: the form sent, which the PMS keeps unshortened, and the forms recognized in responses ---
#
# It is derived from the request id alone, and is as unique: its first 24 characters have at least 100 bits.

_LEAST: Final = 24
_BETWEEN_WORDS: Final = re.compile(r"[\W_]+")
_KNOWN_BY: Final = 20
"""How many letters and digits identify our reference if a PMS cut the rest off: no two ids share them."""
_ANY: Final = re.compile(
    rf"(?<![a-z0-9])rsv[\W_]?(?:[a-z0-9]{{32}}|(?=[a-z]*[0-9])[a-z0-9]{{{_KNOWN_BY - 3},}})", re.IGNORECASE
)
"""Any submission's reference. A shortened one needs a digit, or a field name such as `rsvConfirmationNumber` would be one."""


@dataclass(frozen=True, slots=True)
class ReferenceForm:
    """The form of a reference that a PMS keeps: its first `max_length` characters (at least 24), in capitals if `upper`, without
    the underscore if `alphanumeric`."""

    max_length: int | None = None
    upper: bool = False
    alphanumeric: bool = False

    def __post_init__(self) -> None:
        if self.max_length is not None and self.max_length < _LEAST:
            raise ValueError(f"a reference needs {_LEAST} characters at least")

    @property
    def name(self) -> str:
        parts = (str(self.max_length or ""), "upper" if self.upper else "", "alphanumeric" if self.alphanumeric else "")
        return "-".join(filter(None, parts)) or "id"

    def of(self, request_id: str) -> str:
        text = request_id.replace("_", "") if self.alphanumeric else request_id
        text = text[: self.max_length]
        return text.upper() if self.upper else text


AS_IT_IS: Final = ReferenceForm()


def is_reference(shown: object, ours: str) -> bool:
    """Whether `shown` is or contains our reference: unchanged, in other case, with other punctuation, escaped for HTML or
    an address, cut by the PMS, alone without `rsv`, behind a prefix of its own, or in a text."""
    if shown == ours:  # nearly always
        return True
    if not isinstance(shown, str):
        return False
    words, wanted = _words(unquote(unescape(shown))), _bare(ours)
    if "".join(words) == wanted.removeprefix("rsv"):
        return True
    # No more words than letters can be ours together: a PMS repeats texts of guests, which may be long.
    return any(_begins(words[start : start + len(wanted)], wanted) for start in range(len(words)))


def names_another(text: str, ours: str) -> bool:
    """Whether `text` names another submission's reference, in any form in which references are sent, and not ours."""
    text = unquote(text)
    named, wanted = [_bare(found) for found in _ANY.findall(text)], _bare(ours)
    return bool(named) and wanted not in _bare(text) and not any(_is_same(found, wanted) for found in named)


def _is_same(found: str, wanted: str) -> bool:
    return found == wanted or (len(found) >= _KNOWN_BY and wanted.startswith(found))


def _begins(words: Iterable[str], wanted: str) -> bool:
    """Whether the first of `words` together are `wanted`, or as much of it as identifies it."""
    found = ""
    for word in words:
        found += word
        if not wanted.startswith(found) or _is_same(found, wanted):
            break
    return _is_same(found, wanted)


def _words(text: str) -> list[str]:
    plain = text.casefold()
    if not plain.isascii():
        # A Turkish PMS has İ for the capital of i: its dot is a sign of its own in NFKD. One by one: normalizing sorts long runs of
        # such signs, in quadratic time.
        plain = "".join(each for letter in plain for each in normalize("NFKD", letter) if not combining(each))
    return [word for word in _BETWEEN_WORDS.split(plain) if word]


def _bare(text: str) -> str:
    return "".join(_words(text))
