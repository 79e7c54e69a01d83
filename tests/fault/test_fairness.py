"""One workspace is hostile in every way at once, with an ordinary key. Another's requests are all answered; memory is bounded."""

import asyncio
import socket

from forwarder.http.health import Health, health_routes
from forwarder.http.messages import Admission
from forwarder.http.server import HttpApp, serve
from forwarder.process.supervision import Stop, bind
from tests.fault.campaign.form import Form
from tests.support.stages.hostile import ATTACKS, SETTINGS, Victim, attack, fill
from tests.support.stages.http_stages import stages

MIB = 1024 * 1024
ROUNDS = {"short": 5, "long": 30}
ONE_IN = {"short": 4, "long": 1}
"""Of the connections of `ATTACKS`."""
MOST = {"bodies": 8 * MIB, "responses": 4 * MIB, "waiting": 20}
"""What the hostile one has had at least before the other is judged."""


async def test_a_hostile_workspace_costs_another_no_request(form: Form) -> None:
    admission = Admission(max_requests=200, max_body_bytes=24 * MIB, max_response_bytes=24 * MIB)
    rounds = form.times(**ROUNDS)
    async with stages(SETTINGS, max_waiting=200, admission=admission) as house:
        fill(house)
        app = HttpApp([*house.routes, *health_routes(Health())], house.clock, admission=admission)
        listening, stop = bind("127.0.0.1", 0), Stop()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)  # or the kernel has room for whole pages
        port = listening.getsockname()[1]
        serving = asyncio.create_task(serve(app, listening, stop, grace_seconds=1))
        hostile = asyncio.create_task(attack(port, *ATTACKS, one_in=form.times(**ONE_IN)))
        victim = Victim(port)
        held = {
            "requests": admission.requests,
            "bodies": admission.bodies,
            "responses": admission.responses,
            "waiting": house.outcomes.places,
        }
        most = dict.fromkeys(held, 0)

        def look() -> None:
            for name, each in held.items():
                most[name] = max(most[name], each.held("alpha"))

        try:
            async with asyncio.timeout(240):
                while any(most[name] <= least for name, least in MOST.items()):
                    await asyncio.sleep(0)
                    look()
                running = asyncio.create_task(victim.run(rounds))
                while not running.done():
                    await asyncio.sleep(0)
                    look()
                await running
        finally:
            hostile.cancel()
            await asyncio.gather(hostile, return_exceptions=True)
            stop.set()
            await serving
        assert victim.statuses == dict.fromkeys(("submit 202", "page 200", "health 200"), 4 * rounds)
        # It was hostile indeed, and had no more than its share.
        assert all(0 < most[name] <= each.largest for name, each in held.items())
        assert [each.free for each in (admission.requests, admission.bodies, admission.strangers)] == [
            200,
            24 * MIB,
            50,
        ]
