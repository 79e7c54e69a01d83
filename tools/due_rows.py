"""Work that is due already, put into PostgreSQL's store in bulk, as if it had been taken in long ago."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

_INSERT = """
insert into reservations (
    request_id, record_id, workspace_id, account_id, partition, operation, property_id, room_id, arrival_date, departure_date,
    status, request, fingerprint, accepted_at, created_at, updated_at, deadline_at, due_at
)
select
    'rsv_' || md5(n::text), n, 'demo', ($1::text[])[1 + n % cardinality($1::text[])], n % $2, 'booking-engine', n::text, n::text,
    '2031-03-01', '2031-03-05', 'PENDING', replace(replace($3, '"P0"', '"' || n || '"'), '"T0"', '"T' || n || '"'), md5(n::text),
    now(), now(), now(), now() + interval '1 day', now()
from generate_series(1, $4) as n
"""


async def put_due(
    url: str, accounts: Sequence[str], count: int, *, partitions: int, booking: Mapping[str, Any]
) -> None:
    """So many due submissions of `booking`, each with a property, which is its room, and a transaction of its own, spread over
    accounts and partitions.
    Not on the log."""
    body = json.dumps({**booking, "propertyId": "P0", "roomId": "P0", "transactionId": "T0"})
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        await connection.execute(_INSERT, accounts, partitions, body, count)
        await connection.execute("analyze reservations")
    finally:
        await connection.close()
