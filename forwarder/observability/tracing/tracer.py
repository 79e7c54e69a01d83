"""What records spans, as the seams see it that each work passes: HTTP, the log, PMSs, webhooks.

Where tracing is on, `assembly` wraps each seam: what comes through it with a trace goes on with that of a span of its own, as its
child. The stages keep and send on what they are given, and know of no spans; where it is off, nothing is wrapped.
"""

import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Final, Protocol

ERROR: Final = "error.type"

OUR_ID: Final = re.compile(r"rsv_[a-z2-7]{32}(\.[a-z0-9.]{1,32})?")
"""A submission, or a message about one. What comes from a topic is looked at: who else can write there may have put in anything."""

Attributes = Mapping[str, str | int]
"""Their names are OpenTelemetry's semantic conventions', else `forwarder.…`. Identifiers, numbers and codes of ours: what a caller
or a PMS wrote freely is in none, nor is an address beyond its host."""


class Kind(Enum):
    """What a span is to those before and after it."""

    SERVER = auto()
    CLIENT = auto()
    PRODUCER = auto()
    CONSUMER = auto()
    INTERNAL = auto()


class Span(Protocol):
    """Something that takes time, from when it was started until its end. Nothing here raises or waits."""

    @property
    def trace(self) -> str:
        """What is kept and sent on, so that what comes of it is a part of it (`context`)."""
        ...

    def rename(self, name: str) -> None:
        """What is known of its name only now."""
        ...

    def note(self, attributes: Attributes) -> None: ...

    def fail(self, error_type: str) -> None:
        """It did not succeed; a code says why."""
        ...

    def end(self) -> None: ...


class Tracer(Protocol):
    """Begins spans. Whether one is recorded is sampled; one that is not costs little, and passes that decision on."""

    def start(
        self, name: str, kind: Kind, parent: str | None, attributes: Attributes, *, links: Sequence[str] = ()
    ) -> Span:
        """A span that begins now, as a part of the trace `parent`, or of a new one. `links`: traces that it has to do with."""
        ...
