"""What a dead letter says, what goes back on the topic that it came from, and that every reason has its failure class."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic_core import from_json, to_json

import forwarder
from forwarder.process.clock import iso
from forwarder.reservation.outcome import FAILURE_CLASSES, Deferred, Status
from forwarder.reservation.request import SealedCard
from forwarder.store.submissions.port import DeadLetter, with_attempt
from forwarder.tenancy.sealing import GONE
from forwarder.topics.codec import Undecodable, decode_submission, encode_submission, replay_revision, replayed
from forwarder.topics.port import MAX_MESSAGE_BYTES, ConsumedMessage, Headers, Message, Topics
from forwarder.worker.outcome.recorder import DeadLetterWriter, letter_message
from tests.support.cases import for_each
from tests.support.store.stored import final
from tests.support.worker.works import NOW, work

TOPICS = Topics("staging.")
LETTERS = DeadLetterWriter(TOPICS, "workers")
CARD = SealedCard("key-1", "c2VhbGVk")
ROW = replace(work(7, card=CARD, notes="é"), offset=41, timestamp_ms=1_800_000_000_000, revision=2)
WITHOUT_CARD = replace(ROW.submission, card=GONE)


def failed(reason: str = "pms_unavailable", detail: str = "Down.") -> DeadLetter:
    attempts = with_attempt((), "create", iso(NOW), 0.1, Deferred(reason, detail))
    return LETTERS.failed(ROW, replace(final(ROW, status=Status.FAILED), attempts=attempts))


def headers_of(message: Message) -> dict[str, str]:
    return {name: value.decode() for name, value in message.headers}


def test_a_failure_goes_out_as_it_came_in_without_its_card_and_why() -> None:
    message = letter_message(failed())
    assert decode_submission(message) == WITHOUT_CARD
    assert CARD.sealed.encode() not in message.value
    headers = headers_of(message)
    assert {name: headers[name] for name in headers if name.startswith("dlt-")} == {
        "dlt-original-topic": "staging.reservations.requests",
        "dlt-original-partition": "0",
        "dlt-original-offset": "41",
        "dlt-original-timestamp": "1800000000000",
        "dlt-original-consumer-group": "workers",
        "dlt-exception-class": "pms_unavailable",
        "dlt-exception-message": "Down.",
        "dlt-attempts": "1",
        "dlt-failure-class": "unavailable",
        "dlt-event-id": f"{ROW.submission.request_id}.3",
    }
    assert LETTERS.topics.dead_letters == "staging.reservations.requests-dlt"


@pytest.mark.parametrize("last", ["deadline_passed", "not_made"])
def test_of_what_was_tried_the_class_is_that_of_the_last_reason_other_than_time(last: str) -> None:
    attempts = with_attempt((), "create", iso(NOW), 0.1, Deferred("pms_unavailable", "Down."))
    attempts = with_attempt(attempts, "create", iso(NOW), 0.1, Deferred("pms_unreachable", "No route to host."))
    attempts = with_attempt(attempts, "create", iso(NOW), 0.0, Deferred(last, "Too late."))
    ended = replace(final(ROW, status=Status.FAILED), attempts=attempts)
    headers = headers_of(letter_message(LETTERS.failed(ROW, ended, "pms_failed")))
    assert (headers["dlt-exception-class"], headers["dlt-failure-class"]) == ("pms_unreachable", "unreachable")
    assert (headers["dlt-exception-message"], headers["dlt-attempts"]) == ("No route to host.", "3")


def test_what_waited_for_a_pms_that_was_left_alone_has_the_class_of_why() -> None:
    """161 of 200 letters of a PMS that could not be reached said no more than that time was up."""
    untried = replace(final(ROW, status=Status.FAILED), attempts=())
    headers = headers_of(letter_message(LETTERS.failed(ROW, untried, "pms_unreachable")))
    assert (headers["dlt-exception-class"], headers["dlt-failure-class"]) == ("pms_unreachable", "unreachable")


def test_a_pms_that_failed_without_a_word_leaves_the_reason_to_the_deadline() -> None:
    untried = replace(final(ROW, status=Status.FAILED), attempts=())
    headers = headers_of(letter_message(LETTERS.failed(ROW, untried, "")))
    assert (headers["dlt-exception-class"], headers["dlt-failure-class"]) == ("deadline_passed", "expired")


def test_what_expired_before_it_was_tried_says_so() -> None:
    letter = LETTERS.failed(ROW, replace(final(ROW, status=Status.FAILED), attempts=()))
    headers = headers_of(letter_message(letter))
    assert (headers["dlt-failure-class"], headers["dlt-exception-class"]) == ("expired", "deadline_passed")
    assert headers["dlt-attempts"] == "0"


def test_what_cannot_be_read_goes_out_byte_for_byte() -> None:
    raw = Message(b"\xffacc", b"\x00 no JSON \xfe", (("traceparent", b"kept"),))
    message = LETTERS.set_aside(ConsumedMessage(TOPICS.requests, 3, 17, 5, raw), Undecodable("not a submission"))
    assert (message.key, message.value) == (raw.key, raw.value)
    headers = headers_of(message)
    assert (headers["dlt-original-partition"], headers["dlt-original-offset"]) == ("3", "17")
    assert (headers["dlt-failure-class"], headers["dlt-exception-message"]) == ("undecodable", "not a submission")
    assert "dlt-event-id" not in headers
    assert replayed(message) == raw


@pytest.mark.parametrize(
    ("key", "headers"),
    [
        (b"key", ()),
        (b"k" * 900_000, ()),
        (b"key", (("h" * 400_000, b"v" * 590_000),)),
        (b"key", tuple(("", b"") for _ in range(90_000))),
    ],
)
def test_what_is_too_large_for_a_letter_is_cut_and_says_where_it_stands(key: bytes, headers: Headers) -> None:
    raw = Message(key, b"x" * (MAX_MESSAGE_BYTES - len(key)), headers)
    message = LETTERS.set_aside(ConsumedMessage(TOPICS.requests, 3, 17, 5, raw), Undecodable("not a submission"))
    assert message.size <= MAX_MESSAGE_BYTES
    assert message.value
    assert raw.value.startswith(message.value)
    assert raw.key.startswith(message.key)
    told = headers_of(message)
    assert (told["dlt-original-topic"], told["dlt-original-partition"]) == (TOPICS.requests, "3")
    assert (told["dlt-original-offset"], told["dlt-cut-from-bytes"]) == ("17", str(raw.size))


def test_a_foreign_message_says_nothing_in_our_name() -> None:
    lies = (("dlt-event-id", b"rsv_1.1"), ("dlt-failure-class", b"expired"), ("dlt-cut-from-bytes", b"9"))
    raw = Message(b"key", b"no JSON", (*lies, ("own", b"kept")))
    message = LETTERS.set_aside(ConsumedMessage(TOPICS.requests, 3, 17, 5, raw), Undecodable("not a submission"))
    told = headers_of(message)
    assert (told["dlt-failure-class"], told["own"]) == ("undecodable", "kept")
    assert not {"dlt-event-id", "dlt-cut-from-bytes"} & told.keys()


def test_what_is_put_back_is_the_message_and_the_failure_that_it_replays() -> None:
    back = replayed(letter_message(failed()))
    original = encode_submission(WITHOUT_CARD, iso(WITHOUT_CARD.accepted_at), to_json(WITHOUT_CARD.reservation))
    assert (back.key, from_json(back.value)) == (original.key, from_json(original.value))
    assert back.headers == (*original.headers, ("replay-of", f"{ROW.submission.request_id}.3".encode()))
    assert replay_revision(back, decode_submission(back)) == 3


def test_a_letter_of_a_replay_that_failed_again_replays_that_failure_alone() -> None:
    back = replayed(letter_message(failed()))
    again = LETTERS.failed(replace(ROW, revision=3), final(replace(ROW, revision=3), status=Status.FAILED))
    with_old_mark = replace(letter_message(again), headers=(*letter_message(again).headers, back.headers[-1]))
    marks = [value for name, value in replayed(with_old_mark).headers if name == "replay-of"]
    assert marks == [f"{ROW.submission.request_id}.4".encode()]


@for_each("mark", [b"", b"rsv_other.3", b".3", b"%s.", b"%s.x", b"%s.-1", b"%s", b"\xff"])
def test_a_mark_that_is_none_of_this_submission_replays_nothing(mark: bytes) -> None:
    back = replayed(letter_message(failed()))
    own = ROW.submission.request_id.encode()
    marked = replace(back, headers=(*back.headers[:-1], ("replay-of", mark.replace(b"%s", own))))
    assert replay_revision(marked, ROW.submission) is None


def _reasons() -> set[str]:
    """Every reason of a `Deferred` or `InDoubt` that the product's sources name."""
    root = Path(forwarder.__file__).parent
    made = re.compile(r"\b(?:Deferred|InDoubt|NotSent|NoResponse)\(\s*\"([a-z_]+)\"")
    sources = [*root.glob("pms/**/*.py"), *root.glob("worker/**/*.py")]
    return {reason for source in sources for reason in made.findall(source.read_text("utf-8"))}


OTHER = {
    "adapter_failed",
    "cancelled_in_pms",
    "cannot_be_checked",
    "dry_run",
    "grants_unavailable",
    "mapping_lacks_it",
    "store_unavailable",
    "pms_answer_not_understood",
    "pms_broke_protocol",
    "not_shown_yet",
    "pms_half_made",
    "pms_has_it",
    "pms_is_another",
    "pms_knows_key",
    "pms_list_changing",
    "pms_lists_too_much",
    "pms_payment_in_doubt",
    "pms_reference_missing",
    "pms_reference_not_shown",
    "pms_search_unproven",
    "pms_still_working",
    "push_failed",
    "refused_in_doubt",
}
"""Nothing that an operator could do about many at once, and so in no class of their own."""


def test_every_reason_has_its_failure_class_on_purpose() -> None:
    classes = {reason: headers_of(letter_message(failed(reason)))["dlt-failure-class"] for reason in _reasons()}
    assert len(classes) > 10
    assert set(classes.values()) <= set(FAILURE_CLASSES)
    assert {reason for reason, name in classes.items() if name == "other"} <= OTHER
