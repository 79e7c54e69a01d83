"""The span recorder as a port for the seams that work passes: HTTP, the log, PMSs, webhooks.

With tracing on, `assembly` wraps each seam: work that arrives with a trace continues in a child span. The stages keep and forward
the trace that they are given, and know nothing of spans; with tracing off, nothing is wrapped."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from typing import Final, Protocol

ERROR: Final = "error.type"

OUR_ID: Final = re.compile(r"rsv_[a-z2-7]{32}(\.[a-z0-9.]{1,32})?")
"""The id of a submission, or of a message about one. Checked on messages from a topic, where others may write anything."""

Attributes = Mapping[str, str | int]
"""Named by OpenTelemetry's semantic conventions, or `forwarder.…`. Only our identifiers, numbers and codes: never text from a
caller or a PMS, nor any part of an address beyond its host."""


class Kind(Enum):
    """The role of a span between its neighbours, as in OpenTelemetry."""

    SERVER = auto()
    CLIENT = auto()
    PRODUCER = auto()
    CONSUMER = auto()
    INTERNAL = auto()


class Span(Protocol):
    """A span, from its start to its end. No method raises or blocks."""

    @property
    def trace(self) -> str:
        """The trace context to store and forward, so that later work becomes part of this span (`context`)."""

    def rename(self, name: str) -> None:
        """Sets the span's name, if it becomes known only now."""

    def note(self, attributes: Attributes) -> None: ...

    def fail(self, error_type: str) -> None:
        """Marks the span as failed; a code says why."""

    def end(self) -> None: ...


class Tracer(Protocol):
    """Starts spans. Spans are sampled; an unsampled one is cheap, and propagates that decision."""

    def start(
        self, name: str, kind: Kind, parent: str | None, attributes: Attributes, *, links: Sequence[str] = ()
    ) -> Span:
        """Starts a span in the trace `parent`, or in a new trace. `links`: related traces."""


@contextmanager
def ending(*spans: Span) -> Iterator[None]:
    """Ends `spans` after the block. An exception that leaves the block marks them as failed, with the name of its type."""
    try:
        yield
    except BaseException as error:
        for span in spans:
            span.fail(type(error).__name__)
        raise
    finally:
        for span in spans:
            span.end()
