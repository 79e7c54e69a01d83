"""Where the CPU time of this process's main thread goes, by part: a sample every few milliseconds of it.

A sample belongs to the innermost of the functions under way that a part is known by. What a coroutine awaits is under way with it.
What C code does between two lines of Python counts for the line that called it.
"""

import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

_EVERY_SECONDS: Final = 0.002
_REST: Final = "event loop"

Parts = Sequence[tuple[str, str]]
"""A piece of a file's path, and the part of the work it belongs to. The first match counts."""

ACCEPT: Final[Parts] = (
    ("structlog/", "log line"),
    ("observability/logging.py", "log line"),
    ("prometheus_client/", "metrics"),
    ("observability/metrics", "metrics"),
    ("uvicorn/", "server"),
    ("http/connection_limits.py", "server"),
    ("http/connections.py", "server"),
    ("http/server.py", "dispatch, name, measure"),
    ("ingress/routes.py", "admit, authenticate, limit"),
    ("tenancy/", "admit, authenticate, limit"),
    ("checks/card_numbers", "card numbers in texts"),
    ("reservation/checks/", "parse, validate"),
    ("reservation/request.py", "parse, validate"),
    ("reservation/fast.py", "parse, validate"),
    ("reservation/submission.py", "identify: id, natural key, fingerprint"),
    ("ingress/message.py", "identify: id, natural key, fingerprint"),
    ("topics/codec", "write and sign the message"),
    ("topics/kafka/", "publish"),
    ("topics/port.py", "publish"),
    ("aiokafka/", "publish"),
    ("ingress/publisher.py", "known already? publish"),
    ("ingress/responses.py", "respond"),
    ("http/messages.py", "read the body, respond"),
    ("ingress/", "ingress, other"),
)
"""Of one accepted submission."""

DELIVERY: Final[Parts] = (
    ("structlog/", "log line"),
    ("prometheus_client/", "metrics"),
    ("worker/intake.py", "intake"),
    ("aiokafka/consumer/", "intake"),
    ("topics/kafka/log.py", "intake"),
    ("topics/kafka/reader.py", "intake"),
    ("worker/push", "push"),
    ("forwarder/pms/", "push"),
    ("worker/outcome/policy.py", "policy"),
    ("worker/outcome/", "record, publish"),
    ("topics/kafka/", "publish"),
    ("topics/port.py", "publish"),
    ("aiokafka/producer/", "publish"),
    ("aiokafka/", "kafka, both ways"),
    ("worker/dispatch/", "dispatch"),
    ("process/loops.py", "dispatch"),
    ("worker/", "lease, sweep"),
    ("sqlalchemy/", "statements"),
    ("asyncpg/", "statements"),
)
"""Of one delivery."""


class Shares:
    """Samples by part."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._samples: Counter[str] = Counter()
        self._known: dict[str, str | None] = {}

    def sample(self, _signal: int, frame: FrameType | None) -> None:
        """A signal handler."""
        while frame is not None:
            part = self._part_of(frame.f_code.co_filename)
            if part is not None:
                self._samples[part] += 1
                return
            frame = frame.f_back
        self._samples[_REST] += 1

    def _part_of(self, path: str) -> str | None:
        if path not in self._known:
            self._known[path] = next((part for place, part in self._parts if place in path), None)
        return self._known[path]

    def of(self, total: float) -> Mapping[str, float]:
        """`total` shared out by the samples, the largest part first."""
        count = sum(self._samples.values())
        return {part: total * samples / count for part, samples in self._samples.most_common()}

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Takes samples of the block. In the main thread only."""
        before = signal.signal(signal.SIGPROF, self.sample)
        signal.setitimer(signal.ITIMER_PROF, _EVERY_SECONDS, _EVERY_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
