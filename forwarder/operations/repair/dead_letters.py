"""Dead letters for operators: reads the topic from its beginning to its present end, filters, compares with the store, and shows
them. Shows of a card only that there was one: `gone`."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from forwarder.operations.repair.dead_letter_messages import CUT, FORGED, UNDECODABLE, replayed
from forwarder.process.clock import iso
from forwarder.reservation.outcome import Status
from forwarder.reservation.parsing import whole_number
from forwarder.store.submissions.port import FAILURE_CLASS
from forwarder.topics.codec import Undecodable, decode_data, header
from forwarder.topics.port import MAX_MESSAGE_BYTES, ConsumedMessage, Log, Message, moment_of
from forwarder.topics.reading import read_to_end
from forwarder.topics.signing import EVENT_ID

if TYPE_CHECKING:
    from forwarder.store.lists.overview import Overview

_QUERY_SIZE = 1000
_GONE = "gone"
_DIGITS = 9  # of a number that one of ours wrote

Place = tuple[int, int]
"""A letter's place on its topic: partition and offset."""


class LetterState(StrEnum):
    """What an operator can do about a letter."""

    OPEN = "open"
    """Its submission is still FAILED by this letter's event: it can be replayed."""
    REPLAYED = "replayed"
    """It was replayed, or its submission is no longer FAILED or not in the store. Replaying it changes nothing."""
    SUPERSEDED = "superseded"
    """Its submission is FAILED, but a later duplicate has, or may get, a reservation: workers refuse a replay, which would book
    twice."""
    ERASED = "erased"
    """The guest's data was erased: the submission cannot be replayed."""
    CARD_GONE = "card_gone"
    """Its submission is FAILED, and its card was destroyed: submit it again with the card. A replay fails again, unless the account
    sends no cards to its PMS."""
    UNDECODABLE = "undecodable"
    """It could not be decoded as a submission. A replay is set aside again, unless it can be decoded now."""
    FORGED = "forged"
    """It has no valid signature: workers would set it aside again, so it is not replayed."""
    TOO_LARGE = "too_large"
    """It cannot be replayed: it was cut to fit, and its headers give the place of the whole message; or the log would refuse it."""


_STILL_FAILED = (LetterState.OPEN, LetterState.CARD_GONE)


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter without its value. `id` is that of the failure's event, or `partition:offset` of the message that could not be read.

    `account` and `request_id` are empty if unknown. `whole`: the log would take it back unchanged. `had_card`: its submission had a
    card, since destroyed. `superseded_by`: the request id of the submission that was sent in its place.
    """

    id: str
    place: Place
    set_aside_at: datetime
    account: str
    failure_class: str
    reason: str
    detail: str
    attempts: int
    request_id: str
    revision: int | None
    whole: bool = True
    had_card: bool = False
    superseded_by: str | None = None


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Selects letters by `ids`, account, failure class and time, as far as given."""

    ids: Collection[str] = ()
    account: str | None = None
    failure_class: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def includes(self, letter: Letter) -> bool:
        """Whether `letter` matches: set aside at or after `since`, and before `until`."""
        return (
            (not self.ids or letter.id in self.ids)
            and self.account in {None, letter.account}
            and self.failure_class in {None, letter.failure_class}
            and (self.since is None or letter.set_aside_at >= self.since)
            and (self.until is None or letter.set_aside_at < self.until)
        )


class DeadLetterReader:
    """Reads the letters of one deployment from `topic`. Its methods raise `LogUnavailable` and `StoreUnavailable`."""

    def __init__(self, log: Log, topic: str, overview: "Overview") -> None:
        self._log = log
        self._topic = topic
        self._overview = overview

    async def find(self, wanted: LetterFilter) -> Sequence[tuple[Letter, LetterState]]:
        """Matching letters, newest first, each with its state. A letter that was written twice counts once."""
        found: dict[str, Letter] = {}
        async for consumed in self._all():
            letter = letter_of(consumed)
            if wanted.includes(letter):
                found[letter.id] = letter
        newest_first = sorted(found.values(), key=lambda letter: (letter.set_aside_at, letter.place), reverse=True)
        failed = await self._failed(letter.request_id for letter in newest_first if letter.revision is not None)
        stood = [(letter, _state(letter, failed)) for letter in newest_first]
        still_open = [letter.request_id for letter, state in stood if state in _STILL_FAILED]
        later, erased = await self._superseded(still_open), await self._erased(still_open)

        def standing(letter: Letter, state: LetterState) -> tuple[Letter, LetterState]:
            if state in _STILL_FAILED and letter.request_id in erased:
                return letter, LetterState.ERASED
            if state in _STILL_FAILED and letter.request_id in later:
                return replace(letter, superseded_by=later[letter.request_id]), LetterState.SUPERSEDED
            return letter, state

        return [standing(letter, state) for letter, state in stood]

    async def messages(self, letters: Collection[Letter]) -> AsyncGenerator[Sequence[Message], None]:
        """The messages of `letters`, in topic order, in batches. Leaves out pruned ones."""
        places = {letter.place for letter in letters}
        async with aclosing(read_to_end(self._log, self._topic)) as batches:
            async for batch in batches:
                if chosen := [each.message for each in batch if (each.partition, each.offset) in places]:
                    yield chosen

    async def message(self, letter: Letter) -> Message | None:
        """The whole letter; None if it was pruned since."""
        found = [message async for batch in self.messages([letter]) for message in batch]
        return found[0] if found else None

    async def _all(self) -> AsyncIterator[ConsumedMessage]:
        async with aclosing(read_to_end(self._log, self._topic)) as batches:
            async for batch in batches:
                for consumed in batch:
                    yield consumed

    async def _superseded(self, request_ids: Sequence[str]) -> Mapping[str, str]:
        """Of these submissions, those that were submitted again since, with the request id of the later one."""
        found: dict[str, str] = {}
        for first in range(0, len(request_ids), _QUERY_SIZE):
            found |= await self._overview.superseded(request_ids[first : first + _QUERY_SIZE])
        return found

    async def _erased(self, request_ids: Sequence[str]) -> set[str]:
        """Of these submissions, those whose guest's data was erased."""
        found: set[str] = set()
        for first in range(0, len(request_ids), _QUERY_SIZE):
            found |= {*await self._overview.anonymous(request_ids[first : first + _QUERY_SIZE])}
        return found

    async def _failed(self, request_ids: Iterable[str]) -> set[tuple[str, int]]:
        """Of these submissions those that are FAILED now, with the revision of the failure."""
        asked, failed = sorted(set(request_ids)), set()
        for first in range(0, len(asked), _QUERY_SIZE):
            known = await self._overview.statuses(asked[first : first + _QUERY_SIZE])
            failed |= {(each, revision) for each, (status, revision) in known.items() if status is Status.FAILED}
        return failed


def letter_of(consumed: ConsumedMessage) -> Letter:
    """The letter in a message of the dead-letter topic. A foreign message counts as undecodable."""
    headers = consumed.message.headers
    event_id = header(headers, EVENT_ID) or ""
    request_id, _, text = event_id.rpartition(".")
    revision = _number(text) if request_id else None
    known_event, value = revision is not None, _value(consumed.message)
    return Letter(
        id=event_id if known_event else _original_place(consumed),
        place=(consumed.partition, consumed.offset),
        set_aside_at=moment_of(consumed.timestamp_ms),
        account=_account(value, consumed.message),
        failure_class=header(headers, FAILURE_CLASS) or UNDECODABLE,
        reason=header(headers, "dlt-exception-class") or "",
        detail=header(headers, "dlt-exception-message") or "",
        attempts=_number(header(headers, "dlt-attempts")) or 0,
        request_id=request_id if known_event else "",
        revision=revision,
        whole=header(headers, CUT) is None and replayed(consumed.message).size <= MAX_MESSAGE_BYTES,
        had_card=known_event and value.get("card") is not None,
    )


def _original_place(consumed: ConsumedMessage) -> str:
    """The place of the unreadable message; without a header for it, the place of the letter."""
    original = [header(consumed.message.headers, f"dlt-original-{name}") for name in ("partition", "offset")]
    given = [each for each in original if each is not None]
    return ":".join(given) if len(given) == len(original) else f"dlt:{consumed.partition}:{consumed.offset}"


def _value(message: Message) -> Mapping[str, Any]:
    try:
        return decode_data(message)
    except Undecodable:
        return {}


def _account(value: Mapping[str, Any], message: Message) -> str:
    """The account in the value, or else in the key, which begins with it."""
    named = value.get("integrationAccountId")
    return named if isinstance(named, str) else message.key.decode("utf-8", "replace").partition(":")[0]


def _number(text: str | None) -> int | None:
    return None if text is None else whole_number(text, _DIGITS)


def _state(letter: Letter, failed: Collection[tuple[str, int]]) -> LetterState:
    if not letter.whole:
        return LetterState.TOO_LARGE
    if letter.revision is None:
        return LetterState.FORGED if letter.failure_class == FORGED else LetterState.UNDECODABLE
    if (letter.request_id, letter.revision) not in failed:
        return LetterState.REPLAYED
    return LetterState.CARD_GONE if letter.had_card else LetterState.OPEN


def row(letter: Letter, state: LetterState) -> dict[str, Any]:
    """A letter in a list."""
    return {
        "id": letter.id,
        "at": iso(letter.set_aside_at),
        "account": letter.account,
        "failureClass": letter.failure_class,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "requestId": letter.request_id or None,
        "standing": state.value,
        "supersededBy": letter.superseded_by,
    }


def headers_of(message: Message) -> dict[str, str]:
    """The headers as text; repeated names are joined by commas, as in HTTP."""
    headers: dict[str, str] = {}
    for name, value in message.headers:
        text = value.decode("utf-8", "backslashreplace")
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


def value_of(letter: Letter, message: Message) -> dict[str, Any] | None:
    """The value of a failure's letter, without the card. None for an undecodable one, which may hold anything."""
    if letter.revision is None:
        return None
    try:
        value = dict(decode_data(message))
    except Undecodable:
        return None
    reservation = value.get("reservation")
    if isinstance(reservation, dict):
        value["reservation"] = _without_content(reservation, "cardDetails")
    return _without_content(value, "card")


def _without_content(value: dict[str, Any], name: str) -> dict[str, Any]:
    return {**value, name: _GONE} if value.get(name) is not None else value
