"""What befalls processes, the store and the log."""

from dataclasses import dataclass, replace

from forwarder.topics.codec import SIGNATURE
from forwarder.topics.port import Message
from tests.net.moves.callers import Submit
from tests.net.moves.move import Move, one_of
from tests.net.world import ACCOUNTS, World
from tests.net.worlds.log import TOPICS
from tests.net.worlds.mishap import Effect, Mishap, Seam

_PLACE = one_of(0, 1)
_STEPS = (
    "store claim",
    "store ingest",
    "store record",
    "store release",
    "store mark_pushing",
    "store published",
    "store renew",
    "store request_cancellations",
    "log publish",
    "log commit",
    "pms create",
    "pms create",
    "pms find",
    "pms cancel",
)


@dataclass(frozen=True, slots=True)
class KillWorker(Move):
    """A worker is killed, and perhaps started again."""

    place: int = _PLACE
    again: bool = one_of(True, False)

    def happen(self, world: World) -> None:
        world.trouble(60.0)
        for process in world.at(self.place):
            world.say(f"{process.name}: is killed")
            process.crash()
        world.pass_time(0.0)
        if self.again or not world.processes():
            world.start_worker()


@dataclass(frozen=True, slots=True)
class StopWorker(Move):
    """A worker is told to stop, and perhaps another is started."""

    place: int = _PLACE
    again: bool = one_of(True, False)

    def happen(self, world: World) -> None:
        world.trouble(60.0)
        world.say(f"worker {self.place}: is told to stop")
        world.stop_worker(self.place)
        if self.again:
            world.start_worker()


@dataclass(frozen=True, slots=True)
class StartWorker(Move):
    """One more worker."""

    def happen(self, world: World) -> None:
        world.trouble(10.0)
        world.start_worker()


@dataclass(frozen=True, slots=True)
class SuspendWorker(Move):
    """A worker's process is stopped for a while; its clocks go on."""

    place: int = _PLACE
    seconds: float = one_of(10.0, 50.0, 100.0)

    def happen(self, world: World) -> None:
        world.trouble(self.seconds + 60.0)
        for process in world.at(self.place):
            world.say(f"{process.name}: is stopped for {self.seconds} s")
            process.stop_for(self.seconds)


@dataclass(frozen=True, slots=True)
class SuspendMachine(Move):
    """A worker's machine sleeps: when it wakes, its wall clock is right, and its monotonic clock knows nothing of the time."""

    place: int = _PLACE
    seconds: float = one_of(60.0, 100.0)

    def happen(self, world: World) -> None:
        world.trouble(self.seconds + 60.0)
        for process in world.at(self.place):
            world.say(f"{process.name}: its machine sleeps for {self.seconds} s")
            process.sleep_for(self.seconds)


@dataclass(frozen=True, slots=True)
class CutOff(Move):
    """A worker, or an ingress, does not reach the store or the log."""

    who: str = one_of("worker 0", "worker 1", "ingress 0", "ingress 1")
    seam: Seam = one_of("store", "log")  # noqa: RUF009 - it makes a field
    seconds: float = one_of(10.0, 50.0, 100.0)

    def happen(self, world: World) -> None:
        world.trouble(self.seconds)
        kind, _, number = self.who.partition(" ")
        found = world.at(int(number)) if kind == "worker" else [world.doors[int(number)].process]
        for process in found:
            world.say(f"{process.name}: is cut off from the {self.seam} for {self.seconds} s")
            process.cut(self.seam, self.seconds)


@dataclass(frozen=True, slots=True)
class ClockJumps(Move):
    """A worker's wall clock is set."""

    place: int = _PLACE
    seconds: float = one_of(100.0, -100.0, 3600.0, -3600.0)

    def happen(self, world: World) -> None:
        world.trouble(abs(self.seconds))
        for process in world.at(self.place):
            world.say(f"{process.name}: its clock jumps by {self.seconds} s")
            process.clock.jump(self.seconds)


@dataclass(frozen=True, slots=True)
class PutOut(Move):
    """The group takes a worker's partitions away; it comes back."""

    place: int = _PLACE

    def happen(self, world: World) -> None:
        world.trouble(10.0)
        for member in world.log.members[self.place : self.place + 1]:
            world.say(f"{member.process.name}: is put out of its group")
            world.log.put_out(member)


@dataclass(frozen=True, slots=True)
class DeliverAgain(Move):
    """The log delivers everything that it has once more."""

    def happen(self, world: World) -> None:
        world.trouble(60.0)
        world.say("log: delivers everything again")
        if world.record.losses and world.record.losses[-1][1] == float("inf"):
            reported = {each.request_id for each in world.record.events}
            world.record.traceless |= {each.reference for each in world.record.creates} - reported
        world.log.committed = list(map(min, world.log.committed, world.log.first))
        world.log.rebalance()


@dataclass(frozen=True, slots=True)
class PoisonMessage(Move):
    """Somebody else writes to the requests topic: rubbish, or a submission or cancellation that was not signed or was changed."""

    text: bytes = one_of(b"\xff\x00", b"{}", b"")
    forged: bool = one_of(False, True)

    def happen(self, world: World) -> None:
        world.trouble(10.0)
        for kept in world.log.requests:
            poison = Message(b"alpha-1", self.text)
            if self.forged and kept:
                headers = tuple(each for each in kept[-1].headers if each[0] != SIGNATURE)
                poison = replace(kept[-1], value=kept[-1].value.replace(b"Ana", b"Eve"), headers=headers)
            world.say("log: somebody else writes to it")
            world.log.append(TOPICS.requests, [poison])


@dataclass(frozen=True, slots=True)
class DoorRestarts(Move):
    """An ingress is killed, and starts with an empty memory."""

    number: int = one_of(0, 1)

    def happen(self, world: World) -> None:
        world.say(f"ingress {self.number}: is killed and starts again")
        world.restart_door(self.number)


@dataclass(frozen=True, slots=True)
class Strike(Move):
    """Something goes wrong at one of the next steps of a worker."""

    place: int = _PLACE
    step: str = one_of(*_STEPS)
    nth: int = one_of(1, 2, 3)
    effect: Effect = one_of(*(each for each in Effect if each is not Effect.CLOCK_JUMPS))  # noqa: RUF009 - it makes a field
    seconds: float = one_of(0.0, 5.0, 20.0, 60.0, 100.0)

    def happen(self, world: World) -> None:
        world.trouble(200.0)
        seam, _, name = self.step.partition(" ")
        for process in world.at(self.place):
            world.say(f"{process.name}: at its {self.nth}. {self.step}: {self.effect.value} ({self.seconds} s)")
            process.mishaps.add(Mishap(_SEAMS[seam], self.nth, self.effect, self.seconds, name))


_SEAMS: dict[str, Seam] = {"store": "store", "log": "log", "pms": "pms"}


@dataclass(frozen=True, slots=True)
class StrikeDoor(Move):
    """An ingress's next publish fails, is not acknowledged, or is slow."""

    number: int = one_of(0, 1)
    effect: Effect = one_of(Effect.REFUSED, Effect.UNANSWERED, Effect.SLOW, Effect.LATE)  # noqa: RUF009 - it makes a field

    def happen(self, world: World) -> None:
        world.say(f"ingress {self.number}: its next publish: {self.effect.value}")
        world.doors[self.number].process.mishaps.add(Mishap("log", 1, self.effect, 5.0, "publish"))


@dataclass(frozen=True, slots=True)
class DestroyCards(Move):
    """The keys of all cards are gone, as at their end."""

    def happen(self, world: World) -> None:
        world.record.unwell |= {*ACCOUNTS}
        world.say("store: the keys of all cards are gone")
        world.store.execute("DELETE FROM card_keys")


@dataclass(frozen=True, slots=True)
class FailOver(Move):
    """The database is replaced by a standby that lacks the last seconds. Workers that live notice it at their next connection."""

    seconds: float = one_of(2.0, 10.0, 30.0)

    def happen(self, world: World) -> None:
        if world.restore(self.seconds):
            world.trouble(600.0)
            world.say(f"store: fails over to one that lacks the last {self.seconds} s")


@dataclass(frozen=True, slots=True)
class RestoreSnapshot(Move):
    """Workers stop, the database is restored to an earlier state, workers start."""

    seconds: float = one_of(30.0, 120.0)

    def happen(self, world: World) -> None:
        if world.snapshots:
            world.trouble(600.0)
            count = len(world.processes())
            for process in world.processes():
                process.crash()
            world.pass_time(0.0)
            if world.restore(self.seconds):
                world.say(f"store: is restored to what it was {self.seconds} s ago")
            for _ in range(max(count, 1)):
                world.start_worker()


@dataclass(frozen=True, slots=True)
class LogForgets(Move):
    """Messages go from the log before workers have received them: by retention all up to there, or in an unclean election the
    last ones, acknowledged or not. `fresh`: a submission is among them. Not where the store goes back too: what both have lost
    is nowhere."""

    count: int = one_of(1, 2)
    election: bool = one_of(False, True)
    fresh: bool = one_of(False, True)

    def happen(self, world: World) -> None:
        if self.fresh:
            Submit(keyed=True).happen(world)
            world.pass_time(0.1)
        drop = world.log.cut_off if self.election else world.log.drop
        gone = [] if world.snapshots else drop(self.count)
        if gone:
            world.trouble(60.0)
            world.say(f"log: {len(gone)} messages are gone before anybody received them")
            world.lose(gone, unseen=self.election)
