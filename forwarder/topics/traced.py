"""A log whose messages are spans: one for sending each, one for processing each that is received. A sent message carries the
sender's span, and processing it is a child span in the same trace, also linked to the sender's, because days may lie between."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from operator import attrgetter

from forwarder.observability.tracing import OUR_ID, TRACEPARENT, TRACESTATE, Kind, Span, Tracer, ending, trace_headers
from forwarder.topics import port
from forwarder.topics.codec import header, subject, trace_of
from forwarder.topics.port import ConsumedMessage, Message


class TracedLog:
    """`log` with spans. `system`: `kafka` or `embedded`."""

    def __init__(self, log: port.Log, tracer: Tracer, system: str) -> None:
        self._log, self._tracer, self._system = log, tracer, system
        self.tail, self.admin = log.tail, log.admin

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[port.Publisher]:
        async with self._log.publisher() as publisher:
            yield TracedPublisher(publisher, self._tracer, self._system)

    @asynccontextmanager
    async def consumer(
        self, topic: str, *, group: str, on_partitions: port.PartitionsChanged, on_gap: port.GapFound | None = None
    ) -> AsyncIterator[port.Consumer]:
        async with self._log.consumer(topic, group=group, on_partitions=on_partitions, on_gap=on_gap) as consumer:
            traced = TracedConsumer(consumer, self._tracer, self._system, group)
            try:
                yield traced
            finally:
                traced.give_up()


class TracedPublisher:
    """Sends messages without a trace unchanged: they belong to no traced request."""

    def __init__(self, publisher: port.Publisher, tracer: Tracer, system: str) -> None:
        self._publisher, self._tracer, self._system = publisher, tracer, system
        self.partition, self.ready = publisher.partition, publisher.ready

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        traces = [trace_of(message.headers) for message in messages]
        counts, spans, sent = Counter(traces), dict[str, Span](), list[Message]()
        for message, trace in zip(messages, traces, strict=True):
            if trace is None:
                sent.append(message)
                continue
            if trace not in spans:  # one for each trace: a bulk's messages share a trace, and are sent together
                many = {"messaging.batch.message_count": counts[trace]}
                attributes = _attributes(self._system, "send", topic)
                attributes |= _named(message.headers) if counts[trace] == 1 else many
                spans[trace] = self._tracer.start(f"send {topic}", Kind.PRODUCER, trace, attributes)
            sent.append(_with_trace(message, spans[trace].trace))
        with ending(*spans.values()):
            await self._publisher.publish(topic, sent)


class TracedConsumer:
    """A consumer with a span for each message, from its receipt until its offset is committed, or a later one of its partition."""

    def __init__(self, consumer: port.Consumer, tracer: Tracer, system: str, group: str) -> None:
        self._consumer, self._tracer, self._system, self._group = consumer, tracer, system, group
        self._open: dict[tuple[int, int], Span] = {}

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        received = await self._consumer.receive(max_messages=max_messages, wait_seconds=wait_seconds)
        return [self._begun(each) for each in received]

    @property
    def unreadable(self) -> Mapping[int, int]:
        return self._consumer.unreadable

    async def commit(self, messages: Sequence[ConsumedMessage]) -> None:
        ends = {each.partition: each.offset for each in sorted(messages, key=attrgetter("offset"))}
        done = [place for place in self._open if place[1] <= ends.get(place[0], -1)]
        with ending(*(self._open.pop(place) for place in done)):
            await self._consumer.commit(messages)

    def give_up(self, *places: tuple[int, int]) -> None:
        """Ends the spans of messages that were received and not committed, all or at these places: they are received again."""
        for place in places or [*self._open]:
            if (span := self._open.pop(place, None)) is not None:
                span.fail("not_committed")
                span.end()

    def _begun(self, consumed: ConsumedMessage) -> ConsumedMessage:
        self.give_up((consumed.partition, consumed.offset))
        message, sender = consumed.message, trace_of(consumed.message.headers)
        attributes = _attributes(self._system, "process", consumed.topic) | _named(message.headers)
        attributes |= {"messaging.consumer.group.name": self._group, "messaging.kafka.offset": consumed.offset}
        attributes["messaging.destination.partition.id"] = str(consumed.partition)
        links = () if sender is None else (sender,)
        span = self._tracer.start(f"process {consumed.topic}", Kind.CONSUMER, sender, attributes, links=links)
        self._open[consumed.partition, consumed.offset] = span
        return replace(consumed, message=_with_trace(message, span.trace))


def _attributes(system: str, operation: str, topic: str) -> dict[str, str | int]:
    named = {"messaging.operation.type": operation, "messaging.operation.name": operation}
    return {"messaging.system": system, **named, "messaging.destination.name": topic}


def _named(headers: port.Headers) -> dict[str, str | int]:
    named = {"messaging.message.id": header(headers, "ce_id"), "forwarder.request_id": subject(headers)}
    return {name: value for name, value in named.items() if value is not None and OUR_ID.fullmatch(value)}


def _with_trace(message: Message, trace: str) -> Message:
    own = (each for each in message.headers if each[0] not in {TRACEPARENT, TRACESTATE})
    headers = (*own, *((name, value.encode()) for name, value in trace_headers(trace)))
    return replace(message, headers=headers)
