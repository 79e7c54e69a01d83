"""Who signs messages in the suites."""

from typing import Final

from forwarder.topics.codec import MessageSigner
from forwarder.topics.port import Message

_KEY: Final = b"0123456789abcdef"


class _Trusting(MessageSigner):
    def verifies(self, message: Message) -> bool:
        return True


SIGNER: Final = MessageSigner(_KEY)
TRUSTING: Final = _Trusting(_KEY)
"""For suites whose messages nobody signs."""
