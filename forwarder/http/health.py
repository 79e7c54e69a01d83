"""Health routes of every process: liveness, readiness and metrics. May use the web framework and the metrics."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.exposition import choose_encoder
from pydantic_core import to_json
from starlette.requests import Request
from starlette.routing import Route

from forwarder.http.messages import NO_STORE, Response, Routes, problem_response
from forwarder.observability.metrics import FAILING_CHECKS, registry
from forwarder.process.loops import LOOPS
from forwarder.process.supervision import Stop
from forwarder.reservation import problems as catalogue

Check = Callable[[], bool | Awaitable[bool]]
"""True if the checked part can work now. A check that raises or takes too long counts as False."""
ALWAYS_ANSWERED: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""Exempt from admission, because an overloaded process is still alive."""
_CHECK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Health:
    """The readiness checks of a process, by name. `lesser`: those without which it still does a part of its work."""

    checks: Mapping[str, Check] = field(default_factory=dict)
    lesser: Mapping[str, Check] = field(default_factory=dict)

    async def confirm(self) -> Mapping[str, bool]:
        """Whether each check passes now; `loops`: no loop fails repeatedly."""
        every: Mapping[str, Check] = {**self.checks, "loops": lambda: not LOOPS.failing(), **self.lesser}

        async def ask(check: Check) -> bool:
            passes = check()
            return passes if isinstance(passes, bool) else await passes

        asked = (asyncio.wait_for(ask(check), _CHECK_SECONDS) for check in every.values())
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return {name: answer is True for name, answer in zip(every, answers, strict=True)}

    async def failing(self) -> Sequence[str]:
        return [name for name, good in (await self.confirm()).items() if not good]


def health_routes(
    health: Health, role: str | None = None, metrics_token: str | None = None, *, leaving: Stop | None = None
) -> Routes:
    """`/healthz`: the process runs. `/readyz`: all checks pass; otherwise 503 with the names of the failed ones. If only lesser
    checks fail, it is degraded and 200, because the process does the rest of its work. Not ready once `leaving` is set. `/metrics`:
    Prometheus, with the failing checks and the metrics of `role`, or all; requires the bearer token `metrics_token` if given."""
    confirming: asyncio.Task[Mapping[str, bool]] | None = None

    async def confirmed() -> Mapping[str, bool]:
        """One run of the checks for all who ask meanwhile: anybody may ask, as often as they like."""
        nonlocal confirming
        if confirming is None or confirming.done():
            confirming = asyncio.create_task(health.confirm())
        return await asyncio.shield(confirming)

    async def ready(_request: Request) -> Response:
        checks = await confirmed()
        failed = [name for name, good in checks.items() if not good]
        if leaving is not None and leaving.is_set():
            return Response(503, to_json({"status": "stopping", "checks": checks, "failed": failed}), (NO_STORE,))
        unready = any(name not in health.lesser for name in failed)
        status = "not ready" if unready else "degraded" if failed else "ready"
        failing = {"failingLoops": loops} if (loops := LOOPS.failing()) else {}
        body = to_json({"status": status, "checks": checks, "failed": failed, **failing})
        return Response(503 if unready else 200, body, (NO_STORE,))

    async def metrics(request: Request) -> Response:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        wanted = (metrics_token or "").encode()
        bears = scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), wanted)
        if metrics_token is not None and not bears:
            bearer = "Authorization: Bearer <FORWARDER_METRICS_TOKEN of this process>"
            only = f"Metrics are for who sends {bearer}; API keys open none."
            return problem_response(catalogue.UNAUTHENTICATED.problem(only))
        FAILING_CHECKS.replace({(name,): float(not good) for name, good in (await confirmed()).items()})
        try:
            encode, content_type = choose_encoder(request.headers.get("accept", ""))
        except TypeError:  # it compares a version that is none
            encode, content_type = choose_encoder("")
        return Response(200, encode(registry(role)), media_type=content_type.encode())

    alive = Response(200, b'{"status":"ok"}', (NO_STORE,))
    return [Route("/healthz", alive, methods=["GET"]), Route("/readyz", ready), Route("/metrics", metrics)]
