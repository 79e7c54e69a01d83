"""The headers of dead letters: which message each is about, why it was set aside, and how it is replayed. Pure.

The header names are those of Spring Kafka's dead letters, without their prefix. `dlt-event-id` is ours: the result event of the
failure that a letter is about. A replayed letter carries it as `replay-of`, so that a replay works only once.
"""

from typing import Final

from forwarder.reservation.failures import FAILURE_CLASS, INTERNAL_ERROR, UNDECODABLE
from forwarder.reservation.parsing import whole_number
from forwarder.topics.port import Message
from forwarder.topics.signing import EVENT_ID, REPLAY_OF

PREFIX: Final = "dlt-"  # how every header of a dead letter begins
CUT: Final = "dlt-cut-from-bytes"
"""The header of a letter that was cut because its message was too large: the message's size in bytes."""


def unread_place(letter: Message) -> tuple[int, int] | None:
    """Partition and offset of the message of a `letter` that could not be decoded or stored; None for other letters."""
    headers = {name: value.decode("utf-8", "replace") for name, value in letter.headers}
    partition, offset = (whole_number(headers.get(f"{PREFIX}original-{name}", "")) for name in ("partition", "offset"))
    stored = headers.get(FAILURE_CLASS) not in {UNDECODABLE, INTERNAL_ERROR} or EVENT_ID in headers
    if stored or partition is None or offset is None:
        return None
    return partition, offset


def replayed(letter: Message) -> Message:
    """`letter` without its dead-letter headers, to publish on the topic that it came from."""
    own = tuple((name, value) for name, value in letter.headers if not name.startswith(PREFIX) and name != REPLAY_OF)
    event_id = next((value for name, value in letter.headers if name == EVENT_ID), None)
    marked = () if event_id is None else ((REPLAY_OF, event_id),)
    return Message(letter.key, letter.value, (*own, *marked))
