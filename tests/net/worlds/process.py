"""A worker's process from outside: it lives, is stopped and goes on, dies between any two steps, and has clocks of its own."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.net.worlds.mishap import Effect, Mishap, Mishaps, Seam
from tests.net.worlds.virtual_time import VirtualTimeLoop

EPOCH = datetime(2027, 1, 1, tzinfo=UTC)

_running: ContextVar["Process | None"] = ContextVar("process", default=None)


class Crash(BaseException):
    """The process is no more. No code of the product's may catch it, and nothing it does on its way has an effect."""


class Process:
    """Every step that it takes outside itself goes through `awake`, or at least `alive`."""

    def __init__(self, name: str, loop: VirtualTimeLoop, clock: "HostClock") -> None:
        self.name = name
        self.loop = loop
        self.clock = ProcessClock(self, clock)
        self.mishaps = Mishaps()
        self.cut_off: dict[Seam, float] = {}
        self.crashed = False
        self.pushes_under_way = 0
        self.asleep_seconds = 0.0
        self._going_on = asyncio.Event()
        self._going_on.set()
        self._stopped_since = 0.0
        self._stopped_until = 0.0
        self._tasks: dict[asyncio.Task[Any], None] = {}

    @property
    def stopped_seconds(self) -> float:
        """For how long it has been stopped."""
        return 0.0 if self._going_on.is_set() else self.loop.time() - self._stopped_since

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` and whatever it starts as this process's own."""
        context = copy_context()
        context.run(_running.set, self)
        return context.run(self.loop.create_task, work)

    def owns(self, task: asyncio.Task[Any]) -> None:
        """`task` ends with the process."""
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def alive(self) -> None:
        """Raise `Crash` in what is dead."""
        if self.crashed:
            raise Crash

    async def awake(self) -> None:
        """Return when the process runs; `Crash` in what is dead."""
        self.alive()
        while not self._going_on.is_set():
            await self._going_on.wait()
            self.alive()

    def crash(self) -> None:
        """Die here and now: whatever its own tasks still wait for is cancelled, as often as it takes."""
        self.crashed = True
        self._going_on.set()
        self._unwind()

    def _unwind(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            self.loop.call_soon(self._unwind)

    def bury(self) -> None:
        """After `crash`, from outside: everything unwinds."""
        while self._tasks:
            self.loop.run_for(0.0)

    def stop_for(self, seconds: float) -> None:
        """As by SIGSTOP, and SIGCONT so much later."""
        if not self.crashed:
            self._stopped_until = max(self._stopped_until, self.loop.time() + seconds)
            if self._going_on.is_set():
                self._stopped_since = self.loop.time()
            self._going_on.clear()
            self.loop.call_at(self._stopped_until, self._go_on)

    def sleep_for(self, seconds: float) -> None:
        """As `stop_for`, with its whole machine: the monotonic clock stands still meanwhile."""
        self.asleep_seconds += seconds
        self.stop_for(seconds)

    def _go_on(self) -> None:
        if self.loop.time() >= self._stopped_until:
            self._going_on.set()

    def be_well(self) -> None:
        """Running, and without mishaps from now on."""
        self._stopped_until = self.loop.time()
        self._going_on.set()
        self.mishaps.clear()
        self.cut_off.clear()

    def cut(self, seam: Seam, seconds: float) -> None:
        """Keep it from reaching that seam for so long."""
        self.cut_off[seam] = self.loop.time() + seconds

    def reaches(self, seam: Seam) -> bool:
        return self.loop.time() >= self.cut_off.get(seam, 0.0)

    async def suffer(self, mishap: Mishap) -> None:
        """What it does to the process; what it does to the step is up to whoever asks for it."""
        match mishap.effect:
            case Effect.CRASH_BEFORE | Effect.CRASH_AFTER:
                self.crash()
                raise Crash
            case Effect.STOP_BEFORE | Effect.STOP_AFTER:
                self.stop_for(mishap.seconds)
                await self.awake()
            case Effect.SLEEP_BEFORE:
                self.sleep_for(mishap.seconds)
                await self.awake()
            case Effect.SLOW | Effect.UNANSWERED | Effect.LATE:
                await self.clock.sleep(mishap.seconds)
            case Effect.CLOCK_JUMPS:
                self.clock.jump(mishap.seconds)
            case Effect.REFUSED | Effect.ROLLED_BACK | Effect.LONG_CONNECTING:
                pass


class HostClock:
    """A host's wall clock, which may jump. The monotonic clocks of all hosts run alike."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0


class ProcessClock:
    """Implements `Clock`."""

    def __init__(self, process: Process, host: HostClock) -> None:
        self._process = process
        self._host = host

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._process.loop.time() + self._host.ahead_seconds)

    def monotonic(self) -> float:
        return self._process.loop.time() - self._process.asleep_seconds

    def jump(self, seconds: float) -> None:
        """Set the host's wall clock."""
        self._host.ahead_seconds += seconds

    async def sleep(self, seconds: float) -> None:
        self._process.alive()
        await asyncio.sleep(max(seconds, 0.0))
        await self._process.awake()


@contextmanager
def on_its_own() -> Iterator[None]:
    """What is started within ends by itself, whatever becomes of the process: a driver's own tasks, that close what was open."""
    token = _running.set(None)
    try:
        yield
    finally:
        _running.reset(token)


def own_tasks(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    """A task factory by which each process owns what it starts."""
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    process = _running.get()
    if process is not None:
        process.owns(task)
    return task
