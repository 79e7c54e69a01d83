"""Pages of a list, as FastAPI's tutorial and asyncpg's have it: a keyset, no filters, no way back, no authentication."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from fastapi import FastAPI, Request

_PAGE = "SELECT id, record FROM reservations WHERE account_id = $1 AND id >= $2 ORDER BY id LIMIT $3"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One pool for the whole process."""
    async with asyncpg.create_pool(os.environ["BASELINE_DATABASE_URL"]) as app.state.pool:
        yield


def application() -> FastAPI:
    """For `uvicorn --factory`."""
    app = FastAPI(lifespan=lifespan)

    @app.get("/readyz")
    async def ready() -> str:
        return "ok"

    @app.get("/api/v1/vrs/reservations")
    async def page(request: Request, cursor: int = 1, limit: int = 10) -> dict[str, Any]:
        account = request.headers["integrationAccountId"]
        rows = await app.state.pool.fetch(_PAGE, account, cursor, limit + 1)
        following = str(rows[limit]["id"]) if len(rows) > limit else ""
        meta = {"limit": limit, "cursors": {"current": str(cursor), "next": following}}
        return {"data": [json.loads(row["record"]) for row in rows[:limit]], "meta": meta}

    return app
