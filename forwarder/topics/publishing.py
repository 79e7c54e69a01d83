"""Shared by the publishers of all backends: the partition of a key, and whether publishing failed recently."""

import asyncio
import math
from functools import lru_cache

from aiokafka.partitioner import murmur2

_FAILURE_SECONDS = 5.0


def partition_of(key: bytes, partitions: int, chosen: int | None = None) -> int:
    """The partition of `key` among `partitions`: by murmur2, like Kafka's default partitioner, so that all clients agree; or the
    `chosen` one, if it exists."""
    return chosen if chosen is not None and chosen < partitions else _positive_hash(key) % partitions


@lru_cache(maxsize=16_384)  # murmur2 is pure Python, and the keys of properties repeat
def _positive_hash(key: bytes) -> int:
    return int(murmur2(key)) & 0x7FFFFFFF


class RecentFailure:
    """Remembers a failure for five seconds, or until something succeeds. Not longer, because an unready process gets no requests
    and could never show that it works again."""

    def __init__(self) -> None:
        self._failed_at = -math.inf

    def record(self, *, failed: bool) -> None:
        self._failed_at = asyncio.get_running_loop().time() if failed else -math.inf

    def recent(self) -> bool:
        return asyncio.get_running_loop().time() - self._failed_at < _FAILURE_SECONDS
