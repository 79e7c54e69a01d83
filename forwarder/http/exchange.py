"""A request's body and its answer, each in one piece where they are short: most are.

ASGI hands both over message by message, each with a wait of its own. What speaks to the server itself, with nothing in between that
would want to see the messages, can take the body that is there, and write the whole answer. The server's side is `http_cycle`.
"""

from collections.abc import Sequence

Header = tuple[bytes, bytes]


class Exchange:
    """What a server's own `receive` and `send` are methods of, where it knows the short way for either. Whatever is unusual takes
    the long one, and so does everything where a server knows no other."""

    def take_body(self) -> bytes | None:
        """The body where all of it has come; None otherwise, and nothing has changed. To be asked before anything is received."""
        return None

    def write(self, status: int, headers: Sequence[Header], body: bytes) -> bool:  # noqa: ARG002 - whoever knows a way reads them
        """Write the whole answer. False where it has to be sent as messages; then nothing was written. `headers` have the length of
        `body`, and lower-case names."""
        return False


def body_at_hand(receive: object) -> bytes | None:
    """The whole body of a request, if it is here already; None where it is to be received."""
    exchange = getattr(receive, "__self__", None)
    return exchange.take_body() if isinstance(exchange, Exchange) else None


def written(send: object, status: int, headers: Sequence[Header], body: bytes) -> bool:
    """Whether the whole answer was written at once; where it was not, it is to be sent."""
    exchange = getattr(send, "__self__", None)
    return isinstance(exchange, Exchange) and exchange.write(status, headers, body)
