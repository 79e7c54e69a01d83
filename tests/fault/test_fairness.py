"""One workspace is hostile in every way at once, with an ordinary key. Another's requests are all answered; memory is bounded."""

import asyncio
import socket

from forwarder.http.admission import Admission
from forwarder.http.health import health_routes
from forwarder.http.server import http_app, serve
from forwarder.process.supervision import Stop, bind
from tests.support.stages.hostile import ATTACKS, SETTINGS, Victim, attack, fill
from tests.support.stages.http_stages import stages

MIB = 1024 * 1024
ROUNDS = 30


async def test_a_hostile_workspace_costs_another_no_request() -> None:
    admission = Admission(max_requests=200, max_body_bytes=24 * MIB, max_response_bytes=24 * MIB)
    async with stages(SETTINGS, max_waiting=200, admission=admission) as house:
        fill(house)
        app = http_app([*house.routes, *health_routes({})], house.clock, admission=admission)
        listening, stop = bind("127.0.0.1", 0), Stop()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)  # or the kernel has room for whole pages
        port = listening.getsockname()[1]
        serving = asyncio.create_task(serve(app, listening, stop, grace_seconds=1))
        hostile = asyncio.create_task(attack(port, *ATTACKS))
        victim = Victim(port)
        most = dict.fromkeys(("requests", "bodies", "responses", "waiting"), 0)
        try:
            async with asyncio.timeout(240):
                while not (admission.responses.held("alpha") > 8 * MIB and house.outcomes.places.held("alpha")):
                    await asyncio.sleep(0)
                running = asyncio.create_task(victim.run(ROUNDS))
                while not running.done():
                    held = (admission.requests, admission.bodies, admission.responses, house.outcomes.places)
                    most = {name: max(most[name], each.held("alpha")) for name, each in zip(most, held, strict=True)}
                    await asyncio.sleep(0)
                await running
        finally:
            hostile.cancel()
            await asyncio.gather(hostile, return_exceptions=True)
            stop.set()
            await serving
        assert victim.statuses == {f"{what}": 4 * ROUNDS for what in ("submit 202", "page 200", "health 200")}
        # It was hostile indeed, and had its share.
        assert 0 < most["requests"] <= admission.requests.largest
        assert 8 * MIB < most["bodies"] <= admission.bodies.largest
        assert 8 * MIB < most["responses"] <= admission.responses.largest
        assert 100 < most["waiting"] <= house.outcomes.places.largest
        assert [each.free for each in (admission.requests, admission.bodies, admission.strangers)] == [
            200,
            24 * MIB,
            50,
        ]
