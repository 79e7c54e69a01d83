"""Topic to PMS to database: each message a task, each change a statement."""

import asyncio
import json
import signal
from dataclasses import dataclass
from typing import Any

import asyncpg
import httpx
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from bench.baseline.settings import Settings

TABLE = """
create table if not exists reservations (
    id bigserial primary key,
    request_id text not null unique,
    status text not null,
    request jsonb not null,
    pms_id text,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
)
"""


@dataclass(frozen=True, slots=True)
class Consumer:
    """The clients that handling a message takes."""

    pool: asyncpg.Pool
    http: httpx.AsyncClient
    producer: AIOKafkaProducer
    settings: Settings

    async def handle(self, value: bytes) -> None:
        """Insert, push, update, announce."""
        message = json.loads(value)
        request_id, reservation = message["requestId"], message["reservation"]
        await self.pool.execute(
            "insert into reservations (request_id, status, request) values ($1, 'PENDING', $2)"
            " on conflict (request_id) do nothing",
            request_id,
            json.dumps(reservation),
        )
        response = await self.http.post(
            f"{self.settings.pms_url}/reservations",
            json={**reservation, "reference": request_id},
            headers={"Authorization": "Bearer secret", "Idempotency-Key": request_id},
        )
        status = "CONFIRMED" if response.is_success else "FAILED"
        pms_id = str(response.json().get("id"))
        await self.pool.execute(
            "update reservations set status = $2, pms_id = $3, updated_at = now() where request_id = $1",
            request_id,
            status,
            pms_id,
        )
        await self.producer.send_and_wait(
            self.settings.results, _result(request_id, status, pms_id), key=request_id.encode()
        )


def _result(request_id: str, status: str, pms_id: str) -> bytes:
    return json.dumps({"requestId": request_id, "status": status, "pmsReservationId": pms_id}).encode()


async def consume(settings: Settings) -> None:
    """Handle messages, at most `in_flight` at a time, until cancelled."""
    limits = httpx.Limits(max_connections=settings.in_flight, max_keepalive_connections=settings.in_flight)
    kafka: dict[str, Any] = {"bootstrap_servers": settings.kafka}
    async with (
        asyncpg.create_pool(settings.database_url, min_size=10, max_size=20) as pool,
        httpx.AsyncClient(limits=limits, timeout=30) as http,
        AIOKafkaProducer(**kafka, acks="all", enable_idempotence=True) as producer,
        AIOKafkaConsumer(
            settings.requests, **kafka, group_id=settings.group, enable_auto_commit=False, auto_offset_reset="earliest"
        ) as source,
    ):
        await pool.execute(TABLE)
        consumer = Consumer(pool, http, producer, settings)
        while True:
            batches = await source.getmany(timeout_ms=100, max_records=settings.in_flight)
            messages = [message for batch in batches.values() for message in batch]
            if messages:
                await asyncio.gather(*(consumer.handle(message.value) for message in messages))
                await source.commit()


async def main() -> None:
    """Until SIGTERM."""
    task = asyncio.ensure_future(consume(Settings.given()))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return


if __name__ == "__main__":
    uvloop.run(main())
