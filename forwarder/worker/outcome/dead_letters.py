"""Dead letters as the worker writes them: messages that it cannot read or store, and submissions that failed for good."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pydantic_core import to_json

from forwarder.process.clock import iso
from forwarder.process.containment import Fault
from forwarder.reservation.failures import EXPIRED_REASONS, FAILURE_CLASS, FORGED, INTERNAL_ERROR, UNDECODABLE, class_of
from forwarder.store.submissions.port import DeadLetter, Ended, Work
from forwarder.tenancy.cards import GONE
from forwarder.topics.codec import encode_submission
from forwarder.topics.dead_letters import CUT, PREFIX
from forwarder.topics.port import MAX_MESSAGE_BYTES, ConsumedMessage, Message, Topics
from forwarder.topics.signing import EVENT_ID

_KEY_BYTES: Final = 1024


class Forged(ValueError):
    """A message without a valid signature of this deployment: someone else wrote or changed it."""


class DeadLetterWriter:
    """Builds the dead letters of one worker group, for `topic`."""

    def __init__(self, topics: Topics, group: str) -> None:
        self._original_topic = topics.requests
        self._group = group
        self.topic = topics.dead_letters

    def set_aside(self, consumed: ConsumedMessage, error: Exception | Fault) -> Message:
        """The dead letter for a message that the worker sets aside: unchanged, or as much as the log takes. Drops dead-letter
        headers that it arrived with. `error`: `Undecodable`, `Forged`, or the fault that it caused."""
        faulty = isinstance(error, Fault)
        headers = self._headers(consumed.partition, consumed.offset, consumed.timestamp_ms) | {
            "dlt-exception-class": type(error.error if isinstance(error, Fault) else error).__name__,
            "dlt-exception-message": str(error),
            "dlt-attempts": "1",
            FAILURE_CLASS: INTERNAL_ERROR if faulty else FORGED if isinstance(error, Forged) else UNDECODABLE,
        }
        message = consumed.message
        own = tuple(each for each in message.headers if not each[0].startswith(PREFIX))
        letter = _with_headers(replace(message, headers=own), headers)
        return letter if letter.size <= MAX_MESSAGE_BYTES else _cut(message, headers)

    def failed(self, work: Work, ended: Ended, failing: str | None = None) -> DeadLetter:
        """The dead letter for `work`, which ended FAILED by `ended`. It says of a card only that there was one. The reason is
        the last one other than an expired deadline; if it was never tried, `failing`: the error that its PMS has been
        returning. The letter of an unreadable row has no value: it gives the place of its message."""
        submission = work.submission if work.submission.card is None else replace(work.submission, card=GONE)
        last = ended.attempts[-1] if ended.attempts else None
        reasoned = [each for each in ended.attempts if each.reason and each.reason not in EXPIRED_REASONS]
        reason, detail = (reasoned[-1].reason, reasoned[-1].detail) if reasoned else (None, None)
        if reason is None and failing is not None:
            reason, detail = failing, "It was not tried before its deadline came: its PMS was failing, and left alone."
        message = encode_submission(submission, iso(submission.accepted_at), to_json(submission.reservation))
        headers = {name: value.decode() for name, value in message.headers}
        headers |= self._headers(work.partition, work.offset, work.timestamp_ms) | {
            "dlt-exception-class": reason or "deadline_passed",
            "dlt-exception-message": detail or "It had not been made when its deadline came.",
            "dlt-attempts": str(last.number if last else 0),
            FAILURE_CLASS: class_of(reason or "deadline_passed"),
            EVENT_ID: ended.event.event_id,
        }
        return DeadLetter(message.key.decode(), "" if work.unreadable else message.value.decode(), headers)

    def _headers(self, partition: int, offset: int, timestamp_ms: int) -> dict[str, str]:
        return {
            "dlt-original-topic": self._original_topic,
            "dlt-original-partition": str(partition),
            "dlt-original-offset": str(offset),
            "dlt-original-timestamp": str(timestamp_ms),
            "dlt-original-consumer-group": self._group,
        }


def letter_message(letter: DeadLetter) -> Message:
    """`letter` as a message for the dead-letter topic."""
    return _with_headers(Message(letter.key.encode(), letter.value.encode()), letter.headers)


def place_only(letter: Message) -> Message:
    """`letter` without the message itself: only the message's place on its topic."""
    own = {name: value.decode() for name, value in letter.headers if name.startswith(PREFIX)}
    return _with_headers(Message(letter.key[:_KEY_BYTES], b""), {CUT: str(letter.size), **own})


def _cut(message: Message, headers: Mapping[str, str]) -> Message:
    """The beginning of `message`, as much as fits, without its own headers. The letter's headers give its place."""
    begun = _with_headers(Message(message.key[:_KEY_BYTES], b""), {**headers, CUT: str(message.size)})
    return replace(begun, value=message.value[: MAX_MESSAGE_BYTES - begun.size])


def _with_headers(message: Message, headers: Mapping[str, str]) -> Message:
    added = tuple((name, value.encode()) for name, value in headers.items())
    return Message(message.key, message.value, (*message.headers, *added))
