"""The habits that PMSs take on."""

from dataclasses import dataclass
from typing import Final

from tests.net.moves.move import Move, one_of
from tests.net.pms import IN_TIME, KEEPS, PROXIES, REPLIES
from tests.net.world import ACCOUNTS, World

_NAMES: Final = tuple(ACCOUNTS)
_ACCOUNT: Final = one_of(*_NAMES[:1] * 3, _NAMES[1])


@dataclass(frozen=True, slots=True)
class NextReplies(Move):
    """How the PMS will answer the next creates."""

    account: str = _ACCOUNT
    first: str = one_of(*REPLIES)
    second: str = one_of(*REPLIES)
    count: int = one_of(1, 1, 2, 3)

    def happen(self, world: World) -> None:
        world.record.unwell.add(self.account)
        names = [self.first, self.second, self.first][: self.count]
        world.say(f"{self.account}: next {', then '.join(names)}")
        world.pmss[self.account].replies.extend(names)


@dataclass(frozen=True, slots=True)
class Keeps(Move):
    """What the PMS keeps of our reference, from now on."""

    account: str = _ACCOUNT
    form: str = one_of(*KEEPS)

    def happen(self, world: World) -> None:
        world.record.unwell.add(self.account)
        world.say(f"{self.account}: keeps our reference {self.form}")
        world.pmss[self.account].keeps = self.form


@dataclass(frozen=True, slots=True)
class ShowsLate(Move):
    """The PMS shows what it made so much later."""

    account: str = _ACCOUNT
    seconds: float = one_of(0.0, 45.0, 60.0)

    def happen(self, world: World) -> None:
        world.record.unwell.add(self.account)
        if world.pmss[self.account].shape not in IN_TIME:
            world.say(f"{self.account}: shows bookings after {self.seconds} s")
            world.pmss[self.account].shows_after = self.seconds


@dataclass(frozen=True, slots=True)
class Repeats(Move):
    """What the PMS says when it is asked for a reference that it has."""

    account: str = _ACCOUNT
    says: str = one_of("again", "exists", "taken")

    def happen(self, world: World) -> None:
        world.record.unwell.add(self.account)
        world.pmss[self.account].repeats = self.says


@dataclass(frozen=True, slots=True)
class ListShifts(Move):
    """Somebody cancels other bookings while the list is read."""

    account: str = _ACCOUNT
    shifts: bool = one_of(True, False)

    def happen(self, world: World) -> None:
        world.record.unwell.add(self.account)
        world.pmss[self.account].shifting = self.shifts


@dataclass(frozen=True, slots=True)
class ProxyAnswers(Move):
    """A proxy in front of the PMS answers look-ups; or it passes them on again."""

    account: str = _ACCOUNT
    how: str = one_of(*PROXIES)

    def happen(self, world: World) -> None:
        world.record.unwell.add(self.account)
        pms = world.pmss[self.account]
        if pms.shape not in IN_TIME or self.how != "answers from its cache":
            world.say(f"{self.account}: a proxy that is asked for reservations {self.how}")
            pms.proxy = self.how


@dataclass(frozen=True, slots=True)
class Down(Move):
    """Nobody answers at the PMS's address."""

    account: str = _ACCOUNT
    seconds: float = one_of(50.0, 400.0, 2500.0)

    def happen(self, world: World) -> None:
        world.record.unwell.add(self.account)
        world.say(f"{self.account}: is down for {self.seconds} s")
        pms = world.pmss[self.account]
        pms.down_until = world.now + self.seconds


@dataclass(frozen=True, slots=True)
class Hangs(Move):
    """The PMS takes requests and answers nothing; or it answers again."""

    account: str = _ACCOUNT
    hangs: bool = one_of(False, True)

    def happen(self, world: World) -> None:
        world.record.unwell.add(self.account)
        world.say(f"{self.account}: {'hangs' if self.hangs else 'answers again'}")
        world.pmss[self.account].hangs = self.hangs


@dataclass(frozen=True, slots=True)
class CancelsBadly(Move):
    """The PMS refuses cancellations, or fails at them."""

    account: str = _ACCOUNT
    how: str = one_of("well", "refuses", "fails")

    def happen(self, world: World) -> None:
        pms = world.pmss[self.account]
        world.say(f"{self.account}: takes cancellations {self.how}")
        pms.refuses_cancellations, pms.cancels_badly = self.how == "refuses", self.how == "fails"


@dataclass(frozen=True, slots=True)
class IsWell(Move):
    """The PMS has no odd habit any more, but what it keeps of references."""

    account: str = _ACCOUNT

    def happen(self, world: World) -> None:
        world.pmss[self.account].be_well()
