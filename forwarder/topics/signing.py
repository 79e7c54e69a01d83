"""Signatures of messages: write access to a topic, or knowing a request id, is not enough to forge a message. Pure. The signature
(keyed BLAKE2b, RFC 7693) covers key, value, and the headers that consumers act on. It is a header itself, so that intermediaries
may add headers. The trace changes on the way, and is not signed."""

from collections.abc import Mapping
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

from forwarder.topics.port import Message

SIGNATURE: Final = "signature"  # the header: `v1,` and 32 hexadecimal digits
EVENT_ID: Final = "dlt-event-id"  # the header of a dead letter: the id of the event that reported its failure
REPLAY_OF: Final = "replay-of"  # the header of a replayed dead letter: its `EVENT_ID`


class MessageSigner:
    """Signs and verifies messages. `key` (16 to 64 bytes) is the same in every process of a deployment."""

    def __init__(self, key: bytes) -> None:
        # A keyed state without data: copying it costs half as much as keying one.
        self._keyed = blake2b(digest_size=16, key=key, person=b"message")

    def signed(self, message: Message) -> Message:
        headers, by_name = message.headers, dict(message.headers)
        if SIGNATURE in by_name:
            headers = tuple(each for each in headers if each[0] != SIGNATURE)
        signed = (*headers, (SIGNATURE, self._signature(message, by_name)))
        return Message(message.key, message.value, signed, message.partition)

    def verifies(self, message: Message) -> bool:
        """Whether `message` is unchanged since a holder of the key signed it."""
        by_name = dict(message.headers)
        # With two headers of one name, another reader might use the other one.
        if len(by_name) != len(message.headers):
            return False
        return compare_digest(by_name.get(SIGNATURE, b""), self._signature(message, by_name))

    def signed_like(self, original: Message, message: Message) -> Message:
        """`message`, derived from `original`: signed if `original` is validly signed."""
        return self.signed(message) if self.verifies(original) else message

    def _signature(self, message: Message, headers: Mapping[str, bytes]) -> bytes:
        get, none = headers.get, b""
        acted_on = (get("ce_type", none), get("ce_id", none), get("ce_time", none))
        letters = (get(REPLAY_OF, none), get(EVENT_ID, none))
        mac = self._keyed.copy()
        # None of these contains NUL in our messages, so the parts cannot be shifted.
        mac.update(b"\0".join((message.key, *acted_on, *letters, message.value)))
        return b"v1,%b" % mac.hexdigest().encode()
