"""A process that publishes to an embedded log and prints the number of each message that was acknowledged, until it is killed.

`python -m tests.contract.topics.publishing_child FILE TOPIC FIRST WRITERS`: the writers publish numbers from FIRST on, all at once.
"""

import asyncio
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

from forwarder.topics.embedded.log import EmbeddedLog
from forwarder.topics.port import Message, Publisher


async def write(publisher: Publisher, topic: str, numbers: Iterator[int]) -> None:
    for number in numbers:
        await publisher.publish(topic, [Message(b"key-%d" % (number % 50), b"%d" % number)])
        print(number, flush=True)


async def main(file: str, topic: str, first: str, writers: str) -> None:
    numbers = itertools.count(int(first))
    async with EmbeddedLog(Path(file)).publisher() as publisher, asyncio.TaskGroup() as group:
        for _ in range(int(writers)):
            group.create_task(write(publisher, topic, numbers))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
