"""Rows to list: a year of ten accounts' reservations, of which the measured one has half. Fast: PostgreSQL makes them itself.

What a row holds depends on its number alone, so that any number of rows has the same mixture. It has about 1.6 kB: the request is
left away where there is a record, which readers are given instead of it, so that ten million rows take 18 GB with their indexes.
"""

from datetime import UTC, date, datetime, timedelta
from typing import Final

import asyncpg
from pydantic_core import from_json, to_json
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from bench.bodies import reservation
from bench.flows import ACCOUNT, WORKSPACE
from forwarder.reservation.outcome import Status
from forwarder.reservation.record import SubmissionState, compose_record

FIRST_ARRIVAL: Final = date(2027, 1, 1)
LAST_UPDATE: Final = datetime(2027, 1, 1, tzinfo=UTC)
_YEAR: Final = timedelta(days=365)
_CHUNK: Final = 20_000
_DAYS: Final = 730
_PROPERTIES: Final = 50
_MOMENT: Final = "2026-12-31T12:00:00.000Z"
_ATTEMPT: Final = f'[{{"number":1,"action":"create","started_at":"{_MOMENT}","duration_ms":48,"outcome":"confirmed"}}]'
# As the service names them, but not vouched for: these characters, and as many of them.
_REQUEST_ID: Final = "'rsv_' || translate(md5(n::text), '0189', 'ghij')"
# Of a thousand, 940 confirmed and 10 that something is still to be done about.
_STATUS: Final = """CASE WHEN n * 31 % 1000 < 940 THEN 'CONFIRMED' WHEN n * 31 % 1000 < 965 THEN 'REJECTED'
    WHEN n * 31 % 1000 < 980 THEN 'CANCELLED' WHEN n * 31 % 1000 < 990 THEN 'FAILED'
    WHEN n * 31 % 1000 < 996 THEN 'PENDING' ELSE 'IN_DOUBT' END"""
_FILL: Final = f"""
INSERT INTO reservations (request_id, record_id, workspace_id, account_id, partition, operation, property_id, room_id, arrival_date,
  departure_date, status, request, fingerprint, accepted_at, created_at, updated_at, deadline_at, attempts, record,
  pms_reservation_id, due_at, failure_class, revision)
SELECT request_id, n, '{WORKSPACE}', CASE WHEN n % 10 < 5 THEN '{ACCOUNT}' ELSE 'other-' || n % 10 END, n % 16,
  'booking-engine', (10000 + n * 7 / 10 % {_PROPERTIES})::text, '1', arrival, arrival + 1 + (n % 7)::int, status,
  CASE WHEN $8::boolean THEN replace($4, 'Ines', 'Guest' || n) WHEN status IN ('PENDING', 'IN_DOUBT') THEN $4 ELSE '{{}}' END,
  md5(n::text), at, at, at, at + interval '1 day',
  '{_ATTEMPT}', CASE WHEN status NOT IN ('PENDING', 'IN_DOUBT') THEN replace(replace(replace($5,
    '"@id"', n::text), '@request', request_id), '@status', status) END,
  CASE WHEN status IN ('CONFIRMED', 'CANCELLED') THEN 'pms-' || n END, CASE WHEN status = 'PENDING' THEN at END,
  CASE WHEN status = 'FAILED' THEN 'unreachable' END, CASE WHEN status = 'PENDING' THEN 0 ELSE 1 END
FROM (SELECT n, {_REQUEST_ID} AS request_id, {_STATUS} AS status,
    date '{FIRST_ARRIVAL}' + (n * 7919 % {_DAYS})::int AS arrival,
    $3::timestamptz - ($6::bigint - n) * ($7::interval / $6::bigint) AS at
  FROM generate_series($1::bigint, $2::bigint) AS n) AS made
"""  # noqa: S608 - constants of our own


async def fill(database_url: str, rows: int, *, whole: bool = False) -> None:
    """Fill the empty table with `rows` rows, its indexes made afterwards, and have it analyzed, with a progress bar. `whole`: each
    with its request, and a guest of its own: `Guest` and its number."""
    request, record = _texts()
    columns = (*Progress.get_default_columns()[:1], BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    connection = await asyncpg.connect(database_url)
    try:
        # Nobody is to survive a crash with these rows.
        await connection.execute("ALTER TABLE reservations SET UNLOGGED; SET synchronous_commit = off")
        await connection.execute("SET maintenance_work_mem = '512MB'")
        indexes = await _drop_indexes(connection)
        with Progress(*columns) as progress:
            task = progress.add_task(f"{rows:,} rows", total=rows)
            for first in range(1, rows + 1, _CHUNK):
                last = min(first + _CHUNK - 1, rows)
                await connection.execute(_FILL, first, last, LAST_UPDATE, request, record, rows, _YEAR, whole)
                progress.update(task, completed=last)
            task = progress.add_task("indexes", total=len(indexes))
            for index in indexes:
                await connection.execute(index)
                progress.advance(task)
        await connection.execute("VACUUM ANALYZE reservations")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


async def _drop_indexes(connection: asyncpg.Connection) -> list[str]:
    """The statements that make them again."""
    found = await connection.fetch(
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'reservations' AND indexname <> 'reservations_pkey'"
    )
    for row in found:
        await connection.execute(f"DROP INDEX {row['indexname']}")
    return [row["indexdef"] for row in found]


def _texts() -> tuple[str, str]:
    """A request, and a record of it with `"@id"`, `@request` and `@status` where these are to be."""
    request = from_json(reservation("pages", 1))
    standing = SubmissionState(0, "@request", Status.CONFIRMED, _MOMENT, _MOMENT, pms_reservation_id="pms-000001")
    record = compose_record(request, standing) | {"id": "@id", "status": "@status"}
    return to_json(request).decode(), to_json(record).decode()
