"""Each process tells operators that it runs; one that stops takes itself off the list, one that was killed falls silent."""

import asyncio
from datetime import timedelta
from pathlib import Path

from forwarder.assembly.backend import open_backend
from forwarder.assembly.role import telling_of_itself
from forwarder.http.health import Health
from forwarder.process.supervision import Stop
from forwarder.settings.environment import Environment
from forwarder.settings.reading import settings_of
from forwarder.store.deployment import ProcessRegister, RunningProcess
from forwarder.store.submissions.port import ThrottleState

THROTTLE = ThrottleState("acc", "open", "pms_unreachable", None, 1, 2, 4, None, None)


async def test_a_process_is_on_the_list_while_it_runs(data_dir: Path) -> None:
    async with open_backend(settings_of(Environment(data_dir=data_dir, revision="abc"))) as backend:
        register, stop, told = ProcessRegister(backend.engine), Stop(), asyncio.Event()

        async def fails() -> bool:
            return False

        def throttles() -> tuple[ThrottleState, ...]:
            told.set()
            return (THROTTLE,)

        now = backend.clock.now()
        killed = RunningProcess("k", "worker", "1", "", "h", now, now - timedelta(minutes=2))
        forgotten = RunningProcess("f", "worker", "1", "", "h", now, now - timedelta(hours=2))
        for each in (killed, forgotten):
            await register.report(each)
        async with telling_of_itself("worker", backend, stop, throttles, Health({"log": fails})):
            await told.wait()
            found = {each.id: each for each in await register.processes()}
            while len(found) != 2 or "f" in found:
                found = {each.id: each for each in await register.processes()}
        running = next(each for each in found.values() if each.id != "k")
        assert (running.role, running.revision, running.throttles) == ("worker", "abc", [THROTTLE])
        assert running.failing == ["log"]
        assert not running.silent(backend.clock.now())
        assert killed.silent(now)
        assert [each.id for each in await register.processes()] == ["k"]
