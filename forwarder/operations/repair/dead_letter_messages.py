"""Dead letters: messages of the requests topic, with headers that say where each came from and why it was set aside. Pure.

The header names are those of Spring Kafka's dead letters, without their prefix. `dlt-event-id` is ours: the result event of the
failure that a letter is about. A replayed letter carries it as `replay-of`, so that a replay works only once.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pydantic_core import to_json

from forwarder.process.clock import iso
from forwarder.process.containment import INTERNAL_ERROR, Fault
from forwarder.reservation.parsing import whole_number
from forwarder.store.submissions.port import FAILURE_CLASS, DeadLetter, Ended, Work
from forwarder.tenancy.cards import GONE
from forwarder.topics.codec import encode_submission
from forwarder.topics.port import MAX_MESSAGE_BYTES, ConsumedMessage, Message, Topics
from forwarder.topics.signing import EVENT_ID, REPLAY_OF

CUT: Final = "dlt-cut-from-bytes"
"""The header of a letter that was cut because its message was too large: the message's size in bytes."""

_PREFIX: Final = "dlt-"
_KEY_BYTES: Final = 1024

UNDECODABLE: Final = "undecodable"
FORGED: Final = "forged"
EXPIRED: Final = "expired"
OTHER: Final = "other"
_CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    EXPIRED: ("deadline_passed", "not_made"),
    "throttled": ("pms_throttled",),
    "unreachable": (
        "pms_unreachable",
        "pms_connect_timed_out",
        "no_connection_free",
        "push_timed_out",
        "pms_not_trusted",
    ),
    "unavailable": (
        "pms_unavailable",
        "pms_put_off",
        "pms_timed_out_reading",
        "pms_timed_out",
        "pms_connection_lost",
        "pms_failed",
    ),
    "card_gone": ("card_gone", "card_code_gone"),
    "misconfigured": (
        "cannot_open",
        "card_key_missing",
        "card_not_bound",
        "bad_options",
        "mapping_does_not_fit",
        "unknown_kind",
        "pms_address_invalid",
        "pms_credential_invalid",
        "pms_not_encrypted",
        "pms_payment_not_possible",
        "pms_redirected",
        "pms_refused_certificate",
        "pms_refused_in_words",
        "pms_refused_request",
        "pms_scope_too_small",
        "pms_unauthorized",
    ),
    INTERNAL_ERROR: (INTERNAL_ERROR,),
}
FAILURE_CLASSES: Final = (*_CLASSES, UNDECODABLE, FORGED, OTHER)
"""`expired`: its deadline came, and nothing else is known of why it was not sent: its account was paused, or the queue too long.
`misconfigured`: the account's settings need an operator. `forged`: no process of this deployment signed it as it is.
`internal_error`: an unexpected exception, contained."""

_CLASS_OF: Final = {reason: name for name, reasons in _CLASSES.items() for reason in reasons}


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
        own = tuple(each for each in message.headers if not each[0].startswith(_PREFIX))
        letter = _with_headers(replace(message, headers=own), headers)
        return letter if letter.size <= MAX_MESSAGE_BYTES else _cut(message, headers)

    def failed(self, work: Work, ended: Ended, failing: str | None = None) -> DeadLetter:
        """The dead letter for `work`, which ended FAILED by `ended`. It says of a card only that there was one. The reason is
        the last one other than an expired deadline; if it was never tried, `failing`: the error that its PMS has been
        returning. The letter of an unreadable row has no value: it gives the place of its message."""
        submission = work.submission if work.submission.card is None else replace(work.submission, card=GONE)
        last = ended.attempts[-1] if ended.attempts else None
        reasoned = [each for each in ended.attempts if each.reason and each.reason not in _CLASSES[EXPIRED]]
        reason, detail = (reasoned[-1].reason, reasoned[-1].detail) if reasoned else (None, None)
        if reason is None and failing is not None:
            reason, detail = failing, "It was not tried before its deadline came: its PMS was failing, and left alone."
        message = encode_submission(submission, iso(submission.accepted_at), to_json(submission.reservation))
        headers = {name: value.decode() for name, value in message.headers}
        headers |= self._headers(work.partition, work.offset, work.timestamp_ms) | {
            "dlt-exception-class": reason or "deadline_passed",
            "dlt-exception-message": detail or "It had not been made when its deadline came.",
            "dlt-attempts": str(last.number if last else 0),
            FAILURE_CLASS: _CLASS_OF.get(reason or "deadline_passed", OTHER),
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


def unread_place(letter: Message) -> tuple[int, int] | None:
    """Partition and offset of the message of a `letter` that could not be decoded or stored; None for other letters."""
    headers = {name: value.decode("utf-8", "replace") for name, value in letter.headers}
    partition, offset = (whole_number(headers.get(f"{_PREFIX}original-{name}", "")) for name in ("partition", "offset"))
    stored = headers.get(FAILURE_CLASS) not in {UNDECODABLE, INTERNAL_ERROR} or EVENT_ID in headers
    if stored or partition is None or offset is None:
        return None
    return partition, offset


def letter_message(letter: DeadLetter) -> Message:
    """`letter` as a message for the dead-letter topic."""
    return _with_headers(Message(letter.key.encode(), letter.value.encode()), letter.headers)


def replayed(letter: Message) -> Message:
    """`letter` without its dead-letter headers, to publish on the topic that it came from."""
    own = tuple((name, value) for name, value in letter.headers if not name.startswith(_PREFIX) and name != REPLAY_OF)
    event_id = next((value for name, value in letter.headers if name == EVENT_ID), None)
    marked = () if event_id is None else ((REPLAY_OF, event_id),)
    return Message(letter.key, letter.value, (*own, *marked))


def place_only(letter: Message) -> Message:
    """`letter` without the message itself: only the message's place on its topic."""
    own = {name: value.decode() for name, value in letter.headers if name.startswith(_PREFIX)}
    return _with_headers(Message(letter.key[:_KEY_BYTES], b""), {CUT: str(letter.size), **own})


def _cut(message: Message, headers: Mapping[str, str]) -> Message:
    """The beginning of `message`, as much as fits, without its own headers. The letter's headers give its place."""
    begun = _with_headers(Message(message.key[:_KEY_BYTES], b""), {**headers, CUT: str(message.size)})
    return replace(begun, value=message.value[: MAX_MESSAGE_BYTES - begun.size])


def _with_headers(message: Message, headers: Mapping[str, str]) -> Message:
    added = tuple((name, value.encode()) for name, value in headers.items())
    return Message(message.key, message.value, (*message.headers, *added))
