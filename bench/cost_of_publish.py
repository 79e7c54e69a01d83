"""What a message costs to publish to Kafka: CPU microseconds, here and in the broker. `python -m bench.cost_of_publish`.

Messages come one by one, at random moments, so many a second (`--rate`, several of them in turn), each published by a task of its
own as in the ingress. `--broker PID` names the broker's process, to count that too.
"""

import argparse
import asyncio
import json
import random
import secrets
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import uvloop

from bench.bodies import reservation
from bench.cpu import tree_seconds
from bench.ingress_alone import ACCOUNT
from forwarder.ingress.message import NewSubmission, SubmissionBuilder, Terms
from forwarder.ingress.responses import Losses
from forwarder.pms.rehearsal import Previews
from forwarder.process.clock import SystemClock
from forwarder.reservation.checks.fields import plausibility, read_request
from forwarder.reservation.submission import RequestIds
from forwarder.tenancy.access import Caller
from forwarder.tenancy.sealing import CardSealer
from forwarder.topics.kafka.log import KafkaLog
from forwarder.topics.port import Message, Publisher

PARTITIONS = 16  # as many as `forwarder topics create` makes
_WARMING_UP = 500


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one message: microseconds of CPU time, and milliseconds until it was acknowledged."""

    rate: int
    own: float
    broker: float
    p50: float
    p99: float


def _messages(count: int) -> list[Message]:
    builder = SubmissionBuilder(RequestIds(b"0123456789abcdef"), CardSealer(), Losses(lambda: Previews(SystemClock())))
    caller, terms = Caller("bench", ACCOUNT, "key-bench"), Terms(None, None, None)
    messages = []
    for number in range(count):
        read = read_request("booking-engine", reservation("publish", number))
        assert not isinstance(read, list)
        now = SystemClock().now()
        submission = builder.build(caller, "booking-engine", read, terms, plausibility(now), now)
        assert isinstance(submission, NewSubmission)
        messages.append(submission.message(submission.accepted_at))
    return messages


def _moments(count: int, rate: int) -> Iterator[float]:
    moment, chance = 0.0, random.Random(rate)
    for _ in range(count):
        moment += chance.expovariate(rate)
        yield moment


async def _publish(publisher: Publisher, topic: str, messages: list[Message], rate: int) -> list[float]:
    """Milliseconds that each of them took."""
    took: list[float] = []

    async def one(message: Message) -> None:
        began = time.perf_counter()
        await publisher.publish(topic, (message,))
        took.append((time.perf_counter() - began) * 1000)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for message, moment in zip(messages, _moments(len(messages), rate), strict=True):
            if (early := began + moment - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            group.create_task(one(message))
    return took


async def _cost(publisher: Publisher, topic: str, messages: list[Message], rate: int, broker: int | None) -> Cost:
    before, own = tree_seconds(broker) if broker else 0.0, time.process_time()
    took = sorted(await _publish(publisher, topic, messages, rate))
    own = time.process_time() - own
    spent = tree_seconds(broker) - before if broker else 0.0
    micros = 1e6 / len(messages)
    return Cost(rate, own * micros, spent * micros, statistics.median(took), took[len(took) * 99 // 100])


async def _measure(arguments: argparse.Namespace) -> list[Cost]:
    log, topic = KafkaLog(arguments.kafka), f"cost-of-publish-{secrets.token_hex(4)}"
    async with log.admin() as admin:
        await admin.create({topic: PARTITIONS})
    costs = []
    async with log.publisher() as publisher:
        await _publish(publisher, topic, _messages(_WARMING_UP), _WARMING_UP)
        for rate in arguments.rate:
            messages = _messages(round(rate * arguments.seconds))
            costs.append(await _cost(publisher, topic, messages, rate, arguments.broker))
    return costs


def main() -> None:
    """Measure, and print a line for each rate, as JSON with `--json`."""
    parser = argparse.ArgumentParser(prog="python -m bench.cost_of_publish")
    parser.add_argument("--kafka", metavar="HOST:PORT", required=True)
    parser.add_argument("--broker", metavar="PID", type=int)
    parser.add_argument("--rate", type=int, nargs="+", default=[50, 1_500, 5_000], help="messages a second")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each rate")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for cost in uvloop.run(_measure(arguments)):
        if arguments.json:
            print(json.dumps(asdict(cost)))
        else:
            own, broker = f"{cost.own:7.1f} µs here", f"{cost.broker:7.1f} µs in the broker"
            print(f"{cost.rate:6,} / s: {own}, {broker}, p50 {cost.p50:.1f} ms, p99 {cost.p99:.1f} ms")


if __name__ == "__main__":
    main()
