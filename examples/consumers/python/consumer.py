"""Follows reservation results on the topic, with aiokafka.

Handling an event and remembering it are one transaction, and the offset is committed after that: a crash in between brings events
again, which are known by then.
"""

import asyncio
import json
import os
import signal
import sqlite3
from typing import Any

from aiokafka import AIOKafkaConsumer

KNOWN = {
    "reservation.confirmed.v1",
    "reservation.rejected.v1",
    "reservation.failed.v1",
    "reservation.in_doubt.v1",
    "reservation.cancelled.v1",
}
TABLE = (
    "create table if not exists bookings (request_id text primary key, revision integer not null, record text not null)"
)
NEWER = """insert into bookings values (?, ?, ?)
on conflict (request_id) do update set revision = excluded.revision, record = excluded.record
where excluded.revision > bookings.revision"""


def handle(database: sqlite3.Connection, message: Any) -> None:
    """Keep the record, unless this event or a later one of its submission was handled. What is not known is passed over: types and
    fields are added over time."""
    headers = {name: value.decode() for name, value in message.headers}
    data = json.loads(message.value)
    if headers.get("ce_type") not in KNOWN or data.get("test"):
        return
    request_id, _, revision = headers["ce_id"].rpartition(".")
    record = data["reservation"]
    if database.execute(NEWER, (request_id, int(revision), json.dumps(record))).rowcount:
        problem = record.get("problem") or {}
        print(headers["ce_type"], request_id, record.get("pmsReservationId") or problem.get("code", ""), flush=True)


async def consume(database: sqlite3.Connection, stop: asyncio.Event) -> None:
    """Handle what comes, batch by batch, until `stop`."""
    async with AIOKafkaConsumer(
        os.environ.get("TOPIC", "reservations.results"),
        bootstrap_servers=os.environ.get("KAFKA", "localhost:9092"),
        group_id=os.environ.get("GROUP", "bookings"),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    ) as consumer:
        while not stop.is_set():
            batch = await consumer.getmany(timeout_ms=500, max_records=500)
            with database:  # one transaction
                for messages in batch.values():
                    for message in messages:
                        handle(database, message)
            if batch:
                await consumer.commit()


async def main() -> None:
    """Until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    database = sqlite3.connect(os.environ.get("DATABASE", "bookings.db"))
    database.execute(TABLE)
    try:
        await consume(database, stop)
    finally:
        database.close()


if __name__ == "__main__":
    asyncio.run(main())
