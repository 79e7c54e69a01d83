"""What is signed, who can tell, and what a signature is good for elsewhere: nothing."""

from collections.abc import Sequence
from dataclasses import replace

from forwarder.topics.codec import EVENT_ID, REPLAY_OF, SIGNATURE, MessageSigner, replayed
from forwarder.topics.port import Message
from tests.support.cases import for_each
from tests.support.log.signers import SIGNER
from tests.support.worker.worker_bench import fresh, message_of

SIGNED = SIGNER.signed(message_of(fresh(1)))


def _with(name: str, value: bytes) -> Message:
    others = [each for each in SIGNED.headers if each[0] != name]
    return replace(SIGNED, headers=(*others, (name, value)))


def test_it_is_told_by_who_has_the_key_however_often_it_was_signed() -> None:
    assert SIGNER.verifies(SIGNED)
    assert SIGNER.signed(SIGNED) == SIGNED
    assert not MessageSigner(b"another key, 16+").verifies(SIGNED)


@for_each(
    "changed",
    [
        replace(SIGNED, key=SIGNED.key + b"0"),
        replace(SIGNED, value=SIGNED.value.replace(b"Maria", b"Mario")),
        # What was the end of the key is the beginning of what follows it.
        replace(_with("ce_type", SIGNED.key[-1:] + b"reservation.submitted.v1"), key=SIGNED.key[:-1]),
        *(_with(name, b"x") for name in ("ce_type", "ce_id", "ce_time", REPLAY_OF, EVENT_ID, SIGNATURE)),
        replace(SIGNED, headers=tuple(each for each in SIGNED.headers if each[0] != SIGNATURE)),
        replace(SIGNED, headers=(*SIGNED.headers, ("ce_type", b"reservation.cancellation_requested.v1"))),
        replace(SIGNED, headers=(("ce_type", b"reservation.cancellation_requested.v1"), *SIGNED.headers)),
    ],
)
def test_what_was_changed_is_not_signed(changed: Message) -> None:
    assert not SIGNER.verifies(changed)


def test_headers_that_nobody_acts_on_may_be_added_on_the_way() -> None:
    assert SIGNER.verifies(replace(SIGNED, headers=(("mirrored-from", b"west"), *SIGNED.headers)))
    assert SIGNER.verifies(_with("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))


def _put_back(letters: Sequence[Message]) -> list[Message]:
    return [SIGNER.signed_like(letter, replayed(letter)) for letter in letters]


def test_a_letter_goes_back_signed_where_a_worker_signed_it_alone() -> None:
    letter = replace(message_of(fresh(1)), headers=(*message_of(fresh(1)).headers, (EVENT_ID, b"rsv_1.1")))
    planted = replace(SIGNED, headers=(*SIGNED.headers, (EVENT_ID, b"rsv_1.1")))
    ours, theirs, as_it_came = _put_back([SIGNER.signed(letter), planted, SIGNED])
    assert SIGNER.verifies(ours)
    assert dict(ours.headers)[REPLAY_OF] == b"rsv_1.1"
    assert not SIGNER.verifies(theirs)
    assert as_it_came == SIGNED
