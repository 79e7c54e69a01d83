"""Follows reservation results on the topic, with FastStream.

Handling an event and remembering it are one transaction, and its offset is committed after that: a crash in between brings the
event again, which is known by then. What could not be handled is tried again until it can, before anything else of its partition.
"""

import asyncio
import json
import logging
import os
import sqlite3
from typing import Annotated, Any

from faststream import AckPolicy, FastStream, Header
from faststream.kafka import KafkaBroker
from pydantic import BaseModel, Field

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


class Event(BaseModel):
    """What this program needs of an event. All other members are passed over: types and fields are added over time."""

    test: bool = False
    reservation: dict[str, Any] = Field(default_factory=dict)


logging.basicConfig(level=logging.WARNING)  # to standard error: what was handled goes to standard output
broker = KafkaBroker(
    os.environ.get("KAFKA", "localhost:9092").split(","),
    consumer_only=True,  # it makes no topic of a misspelt name
    logger=logging.getLogger("consumer"),
)
app = FastStream(broker, logger=logging.getLogger("consumer"))
database = sqlite3.connect(os.environ.get("DATABASE", "bookings.db"))


@app.on_startup
async def prepare() -> None:
    """Make the table, the first time."""
    database.execute(TABLE)


@app.after_shutdown
async def close() -> None:
    """When the last event is handled."""
    database.close()


@broker.subscriber(
    os.environ.get("TOPIC", "reservations.results"),
    group_id=os.environ.get("GROUP", "bookings"),
    auto_offset_reset="earliest",
    ack_policy=AckPolicy.NACK_ON_ERROR,
)
async def handle(
    event: Event, event_id: Annotated[str, Header("ce_id")], kind: Annotated[str, Header("ce_type")]
) -> None:
    """Keep the record, unless this event or a later one of its submission was handled."""
    if kind not in KNOWN or event.test:
        return
    request_id, _, revision = event_id.rpartition(".")
    with database:  # one transaction
        newer = database.execute(NEWER, (request_id, int(revision), json.dumps(event.reservation))).rowcount
    if newer:
        problem = event.reservation.get("problem") or {}
        print(kind, request_id, event.reservation.get("pmsReservationId") or problem.get("code", ""), flush=True)


if __name__ == "__main__":
    asyncio.run(app.run())
