"""What a member of a Kafka consumer group owns just now, and whether its owner has been told. No I/O of its own."""

import asyncio
from collections.abc import Callable, Collection

from aiokafka import ConsumerRebalanceListener, TopicPartition

from forwarder.topics.port import PartitionsChanged


class Membership(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Passes on what a rebalance gives and takes, and holds deliveries back until that was heard.

    `on_revoked` is called at once when partitions are taken away, `on_partitions` is awaited after it.
    """

    def __init__(self, on_partitions: PartitionsChanged, on_revoked: Callable[[], None]) -> None:
        self._on_partitions = on_partitions
        self._on_revoked = on_revoked
        self._owned: frozenset[int] = frozenset()
        self._settled = asyncio.Event()
        self._failure: Exception | None = None
        self.generation = 0
        """Goes up whenever partitions are taken away: what was fetched before is no longer ours to deliver."""

    async def settled(self, *, within: float | None = None) -> bool:
        """Whether partitions are given out and `on_partitions` has returned, waiting for it up to `within` seconds.

        Raises what `on_partitions` raised.
        """
        try:
            async with asyncio.timeout(within):
                await self._settled.wait()
        except TimeoutError:
            return False
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return True

    async def lost(self) -> None:
        """The member is no longer one."""
        self._settled.clear()
        self.generation += 1
        self._on_revoked()
        if self._owned:
            await self._tell(frozenset())

    async def on_partitions_revoked(self, _revoked: Collection[TopicPartition]) -> None:
        """As aiokafka calls it."""
        await self.lost()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """As aiokafka calls it."""
        await self._tell(frozenset(each.partition for each in assigned))
        self._settled.set()

    async def _tell(self, owned: frozenset[int]) -> None:
        self._owned = owned
        try:
            await self._on_partitions(owned)
        except Exception as failure:  # noqa: BLE001 - whatever it is, `receive` raises it; aiokafka would only log it
            self._failure = failure
