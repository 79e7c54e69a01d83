"""How quick the console is on many submissions: `python -m bench.console --rows 1000000`.

Fills a new PostgreSQL with so many rows, of which one in a hundred failed, with their dead letters on a new Kafka; starts
`forwarder console`, signs in, and asks for each page and each search several times: the first time, and the best of the others. A
million rows take some minutes and 5 GB of disk, free again at the end. Fails where a page is slower than `--limit` every time.
"""

import argparse
import asyncio
import json
import re
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import asyncpg
import httpx
from rich.console import Console
from rich.table import Table

from bench.flows import ACCOUNT, WORKSPACE, Ground, topics_under
from bench.ground import judged
from bench.pages_rows import LAST_UPDATE
from bench.pages_sites import prepare
from bench.processes import FORWARDER, Role, local_url, output_of, port_of, running
from tools.servers.postgres.databases import new_database

_TIMES: Final = 5
_REST_SECONDS: Final = 4.2
"""Pages that all share are read anew after four seconds: each is asked for with that in between."""
_BY_AND_BY: Final = "are being read"
"""What a page says that shows at once what is counted, and the rest once it is read."""
_SHARED: Final = ("", "/accounts", f"/accounts/{ACCOUNT}")


@dataclass(frozen=True, slots=True)
class Timed:
    """How long a page took in seconds, the first time and at best after that; and how many bytes it has."""

    path: str
    first: float
    best: float
    size: int


def main(argv: Sequence[str] | None = None) -> int:
    """As `judged`: no page is to be slower than the limit."""
    parser = argparse.ArgumentParser(prog="python -m bench.console", description="How quick the console's pages are.")
    parser.add_argument("--rows", type=int, default=1_000_000, help="submissions (%(default)s)")
    parser.add_argument(
        "--limit", type=float, default=0.3, metavar="SECONDS", help="for the best of each (%(default)s)"
    )
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep the processes' logs here")
    arguments = parser.parse_args(argv)
    shown = Console(width=None if sys.stdout.isatty() else 120)
    return judged(shown, arguments.logs, lambda ground: _measure(ground, arguments.rows, arguments.limit, shown))


async def _measure(ground: Ground, rows: int, limit: float, shown: Console) -> list[str]:
    async with AsyncExitStack() as stack:
        url = (await stack.enter_async_context(new_database(ground.postgres))).replace("+asyncpg", "", 1)
        prefix = f"console-{secrets.token_hex(4)}."
        await stack.enter_async_context(topics_under(ground.kafka, prefix))
        environment = {
            "FORWARDER_DATABASE_URL": url,
            "FORWARDER_KAFKA_BOOTSTRAP_SERVERS": ground.kafka,
            "FORWARDER_TOPIC_PREFIX": prefix,
            "FORWARDER_SECRET_KEY": secrets.token_urlsafe(32),
        }
        await prepare(url, environment, rows, whole=True)
        letters = await _letters(ground, prefix, url)
        key = ("key", "add", "--workspace", WORKSPACE, "--scope", "operate", "--json")
        token = json.loads(await output_of([FORWARDER, *key], environment))["token"]
        home = local_url()
        command = [FORWARDER, "console", "--host", "127.0.0.1", "--port", port_of(home)]
        await stack.enter_async_context(
            running(Role("console", command, environment, f"{home}/readyz"), ground.logs, ground.reaper)
        )
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=home, timeout=120))
        await _sign_in(http, token)
        timed = [await _timed(http, path) for path in await _paths(url, rows, prefix)]
        shown.print(_table(timed, rows, letters))
        return [f"{each.path} took {each.best:.2f} s at best" for each in timed if each.best > limit]


async def _letters(ground: Ground, prefix: str, url: str) -> int:
    """A dead letter for each submission that failed, as workers write them; how many."""
    from aiokafka import AIOKafkaProducer  # noqa: PLC0415 - what the forwarder itself uses

    connection = await asyncpg.connect(url)
    failed = await connection.fetch("SELECT request_id, account_id, request FROM reservations WHERE status = 'FAILED'")
    await connection.close()
    async with AIOKafkaProducer(bootstrap_servers=ground.kafka, linger_ms=20) as producer:
        sent = []
        for each in failed:
            headers = {
                "ce_id": each["request_id"],
                "dlt-event-id": f"{each['request_id']}.1",
                "dlt-original-topic": f"{prefix}reservations.requests",
                "dlt-exception-class": "pms_unreachable",
                "dlt-attempts": "12",
                "dlt-failure-class": "unreachable",
            }
            sent.append(
                await producer.send(
                    f"{prefix}reservations.requests-dlt",
                    each["request"].encode(),
                    each["account_id"].encode() + b":1",
                    headers=[(name, value.encode()) for name, value in headers.items()],
                )
            )
        await asyncio.gather(*sent)
    return len(failed)


async def _sign_in(http: httpx.AsyncClient, token: str) -> None:
    shown = await http.get("/console/sign-in")
    found = re.search(r'name="form_token" value="([^"]+)"', shown.text)
    fields = {"key": token, "next": "/console", "form_token": "" if found is None else found[1]}
    (await http.post("/console/sign-in", data=fields, headers={"Origin": str(http.base_url).rstrip("/")}))


async def _paths(url: str, rows: int, prefix: str) -> Sequence[str]:
    """Each page, and each search: for what is there, new and old, and for what is not."""
    connection = await asyncpg.connect(url)
    some = await connection.fetchrow(
        "SELECT * FROM reservations WHERE status = 'CONFIRMED' AND id > $1 LIMIT 1", rows // 3
    )
    await connection.close()
    if some is None:
        raise ValueError("too few rows")
    old, recent = LAST_UPDATE - timedelta(days=300), LAST_UPDATE - timedelta(hours=1)
    searches: Sequence[Mapping[str, str]] = (
        {},
        {"guest": f"Guest{rows - 7}"},
        {"guest": f"Guest{rows // 3}"},
        {"guest": "nobody of that name"},
        {"guest": "+351910999999"},
        {"property": some["property_id"]},
        {"property": "none"},
        {"transaction": "pages-00000001"},
        {"pms": f"pms-{rows // 2}"},
        {"pms": "none"},
        *({"status": each} for each in ("CONFIRMED", "PENDING", "IN_DOUBT", "FAILED", "CANCELLED", "REJECTED")),
        {"account": ACCOUNT},
        {"workspace": WORKSPACE, "status": "FAILED"},
        {"reason": "pms_unreachable"},
        {"reason": "pms_unreachable", "status": "FAILED"},
        {"since": f"{recent:%Y-%m-%dT%H:%M}"},
        {"before": f"{old:%Y-%m-%dT%H:%M}"},
        {"since": f"{old:%Y-%m-%dT%H:%M}", "before": f"{old + timedelta(days=1):%Y-%m-%dT%H:%M}"},
        {"before": f"{old:%Y-%m-%dT%H:%M}", "account": ACCOUNT, "status": "REJECTED"},
    )
    return (
        *_SHARED,
        *(f"/submissions?{httpx.QueryParams(dict(each))}" for each in searches),
        f"/submissions/{some['request_id']}",
        "/in-doubt",
        f"/in-doubt?account={ACCOUNT}",
        "/dead-letters",
        f"/dead-letters?account={ACCOUNT}",
        f"/dead-letters/replay?account={ACCOUNT}&class=unreachable",
        "/topics",
        f"/topics/{prefix}reservations.requests-dlt",
        "/webhooks",
        "/audit",
    )


async def _timed(http: httpx.AsyncClient, path: str) -> Timed:
    took: list[float] = []
    size = 0
    for _ in range(_TIMES):
        began = time.perf_counter()
        answer = await http.get(f"/console{path}")
        took.append(time.perf_counter() - began)
        if answer.status_code != httpx.codes.OK:
            raise RuntimeError(f"{path}: {answer.status_code}")
        size = len(answer.content)
        if path in _SHARED:
            await asyncio.sleep(_REST_SECONDS)
        while _BY_AND_BY in answer.text:  # as the page does by itself
            answer = await http.get(f"/console{path}")
    return Timed(path, took[0], min(took[1:]), size)


def _table(timed: Sequence[Timed], rows: int, letters: int) -> Table:
    shown = Table(title=f"The console on {rows:,} submissions and {letters:,} dead letters, milliseconds")
    for name in ("page", "first", f"best of {_TIMES - 1}", "kB"):
        shown.add_column(name, justify="left" if name == "page" else "right")
    for each in timed:
        shown.add_row(
            re.sub(r"console-\w+\.", "", each.path) or "/",
            *(f"{1000 * s:.0f}" for s in (each.first, each.best)),
            f"{each.size / 1000:.0f}",
        )
    return shown


if __name__ == "__main__":
    sys.exit(main())
