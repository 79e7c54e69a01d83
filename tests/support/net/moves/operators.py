"""What operators do."""

from dataclasses import dataclass
from typing import ClassVar

from forwarder.operate.submissions.settle import NotInDoubt
from forwarder.topics.codec import header
from forwarder.topics.dead_letters import replayed
from tests.support.machine.worlds.log import TOPICS
from tests.support.net.moves.move import Move, one_of
from tests.support.net.record import short
from tests.support.net.world import ACCOUNTS, World

_ACCOUNT = one_of(*ACCOUNTS)


@dataclass(frozen=True, slots=True)
class PauseOrResume(Move):
    """An account is paused, or resumed."""

    weight: ClassVar[int] = 3
    account: str = _ACCOUNT
    paused: bool = one_of(False, True)

    def happen(self, world: World) -> None:
        world.record.unwell.add(self.account)
        world.say(f"operator: {'pauses' if self.paused else 'resumes'} {self.account}")
        world.accounts.change(self.account, paused=self.paused)
        if self.paused:
            world.trouble(300.0)


@dataclass(frozen=True, slots=True)
class ReplayDeadLetters(Move):
    """All dead letters, or the last ones, are put back."""

    weight: ClassVar[int] = 4
    last: int = one_of(100, 1, 2)

    def happen(self, world: World) -> None:
        for letter in world.log.written[TOPICS.dead_letters][-self.last :]:
            event_id = header(letter.headers, "dlt-event-id")
            if event_id is not None:
                world.say(f"operator: replays {short(event_id)}")
                world.record.replays[event_id] = world.record.replays.get(event_id, 0) + 1
                world.log.append(TOPICS.requests, [replayed(letter)])


@dataclass(frozen=True, slots=True)
class Settle(Move):
    """What is in doubt is settled by somebody who looked into the PMS, once nothing can come any more of what was sent."""

    for_good: bool = one_of(False, True)

    def happen(self, world: World) -> None:
        for request_id in world.in_doubt():
            sent = [each.at for each in world.record.creates if each.reference == request_id]
            if world.now < max(sent, default=0.0) + 120.0:
                continue
            made = [each for each in world.record.bookings if each.reference == request_id and not each.cancelled_at]
            world.record.interventions.add(request_id)
            repair = world.repair()
            if made:
                world.say(f"operator: {short(request_id)} is {made[0].pms_id}")
                world.operate(repair.confirm(request_id, made[0].pms_id), (NotInDoubt,))
            elif self.for_good:
                world.say(f"operator: {short(request_id)} was not made, and is rejected")
                world.operate(repair.reject(request_id, "The guest has gone elsewhere."), (NotInDoubt,))
            else:
                world.say(f"operator: {short(request_id)} was not made, and is pushed again")
                world.operate(repair.push_again(request_id, deadline_seconds=3600.0), (NotInDoubt,))


@dataclass(frozen=True, slots=True)
class ChangeAddress(Move):
    """The account's PMS moves to another address, where another PMS is; or back."""

    account: str = _ACCOUNT
    away: bool = one_of(False, True)

    def happen(self, world: World) -> None:
        world.record.unwell.add(self.account)
        host = f"other-{self.account}" if self.away else self.account
        world.say(f"operator: points {self.account} to {host}")
        world.accounts.change(self.account, base_url=f"https://{host}.pms.test")


@dataclass(frozen=True, slots=True)
class ChangeDeadline(Move):
    """How long submissions of the account are tried."""

    account: str = _ACCOUNT
    seconds: int = one_of(1800, 60, 300)

    def happen(self, world: World) -> None:
        world.record.unwell.add(self.account)
        world.say(f"operator: {self.account} is tried for {self.seconds} s")
        world.accounts.change(self.account, deadline_seconds=self.seconds)


@dataclass(frozen=True, slots=True)
class Recover(Move):
    """`forwarder recover`, once the store is known to lack something."""

    weight: ClassVar[int] = 1

    def happen(self, world: World) -> None:
        if world.record.losses and world.record.losses[-1][1] == float("inf"):
            world.trouble(300.0)
            world.say("operator: forwarder recover")
            world.recover()
