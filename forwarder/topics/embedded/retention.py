"""Which messages of the embedded log may go: old ones that every known group is past. Writes to its file, a little at a time."""

import sqlite3
from datetime import timedelta
from itertools import takewhile

from forwarder.process.clock import Clock
from forwarder.topics.embedded.file import writing

_AT_A_TIME = 500  # so that nobody who publishes waits for it
_EVERY_SECONDS = 600.0


class Retention:
    """Prunes a topic's partitions in turn. A group is known from its first consumer on; without one, age alone decides."""

    def __init__(self, keep: timedelta, clock: Clock) -> None:
        self._keep = keep
        self._clock = clock
        self._due_at = clock.monotonic()

    @property
    def due(self) -> bool:
        """Whether there may be something to prune."""
        return self._clock.monotonic() >= self._due_at

    def prune(self, connection: sqlite3.Connection) -> bool:
        """Delete a few messages; whether there may be more to delete. If not, it is not due for a while."""
        began_at = self._clock.monotonic()  # read first: what grows old while this goes on is not put off
        before_ms = int((self._clock.now() - self._keep).timestamp() * 1000)
        room = _AT_A_TIME
        with writing(connection):
            for topic, partition in connection.execute("select topic, partition from heads").fetchall():
                room -= _prune(connection, topic, partition, before_ms, max_rows=room)
        if room > 0:
            self._due_at = began_at + _EVERY_SECONDS
        return room == 0


def _prune(connection: sqlite3.Connection, topic: int, partition: int, before_ms: int, *, max_rows: int) -> int:
    """Delete from the first message on, up to one that has to stay; how many it was."""
    (safe,) = connection.execute(
        "select min(next_offset) from commits where topic = ? and partition = ?", (topic, partition)
    ).fetchone()
    rows = connection.execute(
        "select offset, timestamp_ms from messages where topic = ? and partition = ? order by offset limit ?",
        (topic, partition, max_rows),
    )
    going = list(takewhile(lambda row: row[1] < before_ms and (safe is None or row[0] < safe), rows))
    if going:
        connection.execute(
            "delete from messages where topic = ? and partition = ? and offset <= ?", (topic, partition, going[-1][0])
        )
    return len(going)
