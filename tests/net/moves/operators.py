"""What operators do."""

from dataclasses import dataclass

from forwarder.operate.submissions.settle import NotInDoubt
from forwarder.topics.codec import header, replayed
from tests.net.moves.move import Move, one_of
from tests.net.pms import SHAPES
from tests.net.record import short
from tests.net.world import ACCOUNTS, World
from tests.net.worlds.log import TOPICS

_ACCOUNT = one_of(*ACCOUNTS)


@dataclass(frozen=True, slots=True)
class PauseOrResume(Move):
    """An account is paused, or resumed."""

    account: str = _ACCOUNT
    paused: bool = one_of(False, True)

    def happen(self, world: World) -> None:
        world.record.unwell.add(self.account)
        world.say(f"operator: {'pauses' if self.paused else 'resumes'} {self.account}")
        world.change_account(self.account, paused=self.paused)
        if self.paused:
            world.trouble(300.0)


@dataclass(frozen=True, slots=True)
class ReplayDeadLetters(Move):
    """All dead letters, or the last ones, are put back."""

    last: int = one_of(100, 1, 2)

    def happen(self, world: World) -> None:
        for letter in world.log.written[TOPICS.dead_letters][-self.last :]:
            event_id = header(letter.headers, "dlt-event-id")
            if event_id is not None:
                world.say(f"operator: replays {short(event_id)}")
                world.record.replays[event_id] = world.record.replays.get(event_id, 0) + 1
                world.log.append(TOPICS.requests, [world.signer.signed_like(letter, replayed(letter))])


@dataclass(frozen=True, slots=True)
class Settle(Move):
    """What is in doubt, or one of it, is settled by somebody who looked into the PMS, once nothing can come any more of what was
    sent."""

    for_good: bool = one_of(False, True)
    count: int = one_of(100, 1)

    def happen(self, world: World) -> None:
        for request_id in world.in_doubt()[: self.count]:
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
        world.record.changed.add(self.account)
        world.record.unwell.add(self.account)
        host = f"other-{self.account}" if self.away else self.account
        if self.away:
            world.strayed.add(self.account)
        world.say(f"operator: points {self.account} to {host}")
        world.change_account(self.account, base_url=f"https://{host}.pms.test")


@dataclass(frozen=True, slots=True)
class ChangeDeadline(Move):
    """How long submissions of the account are tried."""

    account: str = _ACCOUNT
    seconds: int = one_of(1800, 60, 300)

    def happen(self, world: World) -> None:
        world.record.unwell.add(self.account)
        world.say(f"operator: {self.account} is tried for {self.seconds} s")
        world.change_account(self.account, deadline_seconds=self.seconds)


@dataclass(frozen=True, slots=True)
class ChangeCredential(Move):
    """The account's credential is rotated; or becomes that of another account of the PMS; or is again what it was. `same`: the
    operator says that it is the same account of the PMS, where it always was."""

    account: str = _ACCOUNT
    form: str = one_of("token-of-{}", "token-of-{}-rotated", "another-token")
    same: bool = one_of(False, True)

    def happen(self, world: World) -> None:
        world.record.changed.add(self.account)
        world.record.unwell.add(self.account)
        if self.form == "another-token":
            world.strayed.add(self.account)
        same = self.same and self.account not in world.strayed
        world.say(f"operator: the credential of {self.account} becomes {self.form}{', for the same account' * same}")
        world.change_account(self.account, credential=self.form.format(self.account), same_pms=same)


@dataclass(frozen=True, slots=True)
class ChangePace(Move):
    """How many pushes of the account may be in flight, and how many requests a second it allows."""

    account: str = _ACCOUNT
    concurrency: int = one_of(3, 1)
    rate: float | None = one_of(None, 0.2)

    def happen(self, world: World) -> None:
        world.record.unwell.add(self.account)
        world.say(f"operator: {self.account} may have {self.concurrency} pushes at once, {self.rate} a second")
        world.change_account(self.account, concurrency=self.concurrency, rate_per_second=self.rate)


@dataclass(frozen=True, slots=True)
class ChangeOptions(Move):
    """The account's mapping loses its look-ups and keys; or it is as it was."""

    account: str = _ACCOUNT
    blind: bool = one_of(False, True)

    def happen(self, world: World) -> None:
        world.record.changed.add(self.account)
        world.record.unwell.add(self.account)
        shape = "neither" if self.blind else world.pmss[self.account].shape
        world.say(f"operator: the mapping of {self.account} is for a PMS of shape {shape}")
        world.change_account(self.account, options=SHAPES[shape])


@dataclass(frozen=True, slots=True)
class Recover(Move):
    """`forwarder recover`, if a worker says that the store lacks something."""

    def happen(self, world: World) -> None:
        if world.is_behind():
            world.trouble(300.0)
            world.say("operator: forwarder recover")
            world.recover()
