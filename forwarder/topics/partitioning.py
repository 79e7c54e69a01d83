"""Which partition a key belongs to: the same answer as Kafka's own clients give, so that they and every backend agree.

Pure. Touches nothing.
"""

from functools import lru_cache

from aiokafka.partitioner import murmur2

_SIGN_BIT_OFF = 0x7FFFFFFF
_KEYS_REMEMBERED = 16_384  # hashing is pure Python, and keys come again and again: one for each property


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of `key` among so many, by murmur2 as in Kafka's default partitioner."""
    return _positive_hash(key) % partitions


@lru_cache(maxsize=_KEYS_REMEMBERED)
def _positive_hash(key: bytes) -> int:
    hashed: int = murmur2(key)
    return hashed & _SIGN_BIT_OFF
