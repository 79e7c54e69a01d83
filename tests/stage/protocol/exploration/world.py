"""The states of an exploration, and the steps from each: callers, log, workers, store and PMS, with one of each fault.

The decisions are the product's: what the store does is in `rows`, what a push does in `pushes`. Here are only the parties
outside the forwarder, the order of events, and what must hold in every state. The clock stands still: when time passes, everything
that waits comes nearer. So a state does not depend on when it was reached.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, NamedTuple

from forwarder.reservation.outcome import (
    Absent,
    CancellationRequest,
    Cancelled,
    Confirmed,
    Deferred,
    InDoubt,
    Rejected,
    Status,
)
from forwarder.reservation.problems import Problem
from forwarder.reservation.submission import NaturalKey, Submission
from forwarder.store.submissions.port import Arrival, Work
from tests.stage.protocol.exploration.pushes import (
    LEASE,
    PUSH,
    Answer,
    Asks,
    Decides,
    GivesBack,
    Pushes,
    Seen,
    ended_at_the_deadline,
    lease_is_over,
)
from tests.stage.protocol.exploration.rows import DAY, Row, Rows, Stored, field, later, seconds_until
from tests.support.worker.works import NOW, submission
from tools.reference.transition_table import TRANSITIONS

_FINAL: Final = {"CONFIRMED", "REJECTED", "FAILED", "CANCELLED"}
_ANSWERS: Final[dict[str, Answer | bool]] = {
    "made": Confirmed("pms"),
    "shown": Confirmed("pms"),
    "absent": Absent(),
    "cancelled": Cancelled(),
    "lost": InDoubt("pms_timed_out", "No answer."),
    "positive": InDoubt("pms_answer_not_understood", "", made=True, status=201),
    "refused": Rejected(Problem("room_unavailable", "Taken", 409, "These nights are taken.")),
    "down": Deferred("pms_unreachable", "The PMS is down."),
    "yes": True,
    "no": False,
}
"""What a push may be answered, by names: a state consists of names."""

_CHANGES: Final = {
    (before, after)
    for each in TRANSITIONS
    for before in each.before.split(", ")
    for after in each.after.split(", ")
    if after in Status.__members__
}

FAULTS: Final = (
    *("answer to the caller lost", "caller cancels", "redelivered", "rebalanced", "crash", "stopped past its lease"),
    *("answer lost", "request lost", "shown late", "committed late", "positive without proof", "refused", "down"),
    *("look-up fails", "cancellation unanswered", "outage until the deadline", "dead letter replayed"),
)
"""Each happens at most once in a history."""


class Violation(Exception):
    """Something does not hold."""


class Message(NamedTuple):
    """On the requests topic: `submit`, `cancel` or `replay` (`revision`: of the failure)."""

    what: str
    request_id: str
    revision: int = 0


class Hand(NamedTuple):
    """A row that a worker has in memory. `row`: as it was leased; `asked`: what its push waits for. `lost_after`,
    `cancelled_after`: how many answers it had when its lease was lost, or its cancellation was ingested; -1: it had not begun."""

    row: Row
    answers: tuple[str, ...] = ()
    asked: str = ""
    lost_after: int | None = None
    cancelled_after: int | None = None

    @property
    def id(self) -> int:
        return int(field(self.row, "id"))

    @property
    def request_id(self) -> str:
        return str(field(self.row, "request_id"))


class Worker(NamedTuple):
    """`stopped`: suspended past its lease. `seen`: what its clock knows of each row."""

    name: int
    life: int = 0
    stopped: bool = False
    hands: tuple[Hand, ...] = ()
    seen: tuple[tuple[int, Seen], ...] = ()

    @property
    def id(self) -> str:
        return f"worker-{self.name}.{self.life}"

    def with_hand(self, hand: Hand) -> "Worker":
        others = (each for each in self.hands if each.id != hand.id)
        return self._replace(hands=tuple(sorted((*others, hand), key=lambda each: each.id)))

    def without(self, row_id: int) -> "Worker":
        return self._replace(hands=tuple(each for each in self.hands if each.id != row_id))

    def seen_of(self, row_id: int) -> Seen:
        return dict(self.seen).get(row_id)

    def with_seen(self, row_id: int, seen: Seen) -> "Worker":
        kept = {**dict(self.seen), row_id: seen}
        return self._replace(seen=tuple(sorted((each, known) for each, known in kept.items() if known is not None)))


class Booked(NamedTuple):
    """What the PMS has under one reference. `hidden`: the seconds until it is shown; `flying`: of each create that it has not
    carried out, the seconds until it must be, and until what it makes is shown; `yes`: a response said that it was made."""

    made: int = 0
    cancelled: int = 0
    hidden: float = 0.0
    flying: tuple[tuple[float, float], ...] = ()
    yes: bool = False

    @property
    def stands(self) -> bool:
        return self.made > self.cancelled


class State(NamedTuple):
    """`receipts`: of each submission that an ingress recognised, the request id that its caller was given. `position`: of the next
    message to ingest. `owner`: the worker that has the partition. `ended`: leases that are no longer renewed, each with its age."""

    sent: tuple[str, ...] = ()
    receipts: tuple[tuple[str, str], ...] = ()
    cancelled: tuple[str, ...] = ()
    log: tuple[Message, ...] = ()
    position: int = 0
    stored: Stored = Stored()
    workers: tuple[Worker, ...] = ()
    owner: int = 0
    ended: tuple[tuple[str, float], ...] = ()
    pms: tuple[tuple[str, Booked], ...] = ()
    faults: frozenset[str] = frozenset()

    def booked(self, request_id: str) -> Booked:
        return dict(self.pms).get(request_id, Booked())

    def with_booked(self, request_id: str, booked: Booked) -> "State":
        return self._replace(pms=tuple(sorted({**dict(self.pms), request_id: booked}.items())))

    def with_worker(self, worker: Worker) -> "State":
        return self._replace(workers=tuple(worker if each.name == worker.name else each for each in self.workers))

    def with_row(self, row: Row) -> "State":
        rows = tuple(row if field(each, "id") == field(row, "id") else each for each in self.stored.rows)
        return self._replace(stored=self.stored._replace(rows=rows))


Steps = Iterator[tuple[str, State]]


@dataclass(frozen=True, slots=True)
class Bound:
    """How far to explore: `submissions` that callers mean, `workers`, and at most `faults` of those `allowed` in one history."""

    submissions: int = 3
    workers: int = 2
    faults: int = 2
    allowed: frozenset[str] = frozenset(FAULTS)


class World:
    """All steps from a state. `settles`: within which the PMS shows what it made."""

    def __init__(self, bound: Bound, rows: Rows, pushes: Pushes, *, settles: float, key: bool) -> None:
        self._bound = bound
        self._rows = rows
        self._pushes = pushes
        self._settles = settles
        self._key = key
        self._works: dict[Row, Work] = {}
        self._messages = {
            f"{meant}{copy}": _submission(meant, copy) for meant in "abc"[: bound.submissions] for copy in (1, 2)
        }

    def first(self) -> State:
        """All submissions are on the log, and nothing else has happened."""
        workers = tuple(Worker(name) for name in range(self._bound.workers))
        sent = tuple(name for name in self._messages if name.endswith("1"))
        log = tuple(Message("submit", name) for name in sent)
        return State(sent, log=log, stored=Stored(leases=tuple(each.id for each in workers)), workers=workers)

    def steps(self, state: State) -> Steps:
        """Every next state, each with what happened, in words.

        Steps of different submissions touch different rows, hands and bookings, so their order matters only to a fault that strikes
        between them. Once a history has had all of its faults, one order is enough.
        """
        if any(seconds <= 0.0 for _, booked in state.pms for seconds, _ in booked.flying):
            yield from self._arrives_late(state)  # it cannot come any later
            return
        urgent = [*self._log(state)]
        for meant in "abc":
            own = [*self._works_on(state, meant), *self._answered(state, meant)]
            urgent += own
            if own and len(state.faults) >= self._bound.faults:
                break
        yield from urgent
        yield from self._arrives_late(state)
        if not urgent:
            yield from self._time_passes(state)
        yield from self._mishaps(state)

    def _can(self, state: State, fault: str) -> bool:
        return fault in self._bound.allowed and fault not in state.faults and len(state.faults) < self._bound.faults

    # --- callers ---

    def _published(self, state: State, name: str) -> State:
        return state._replace(
            sent=state.sent if name in state.sent else (*state.sent, name), log=(*state.log, Message("submit", name))
        )

    # --- the log and its ingest ---

    def _log(self, state: State) -> Steps:
        worker = state.workers[state.owner]
        if state.position < len(state.log) and not worker.stopped:
            message = state.log[state.position]
            after = state._replace(position=state.position + 1)
            text = f"{worker.id} ingests {message.what} {message.request_id}"
            if message.what == "cancel":
                yield text, self._cancellation_ingested(after, worker, message)
            else:
                yield text, self._ingested(after, worker, message)

    def _ingested(self, state: State, worker: Worker, message: Message) -> State:
        replay = message.revision if message.what == "replay" else None
        arrival = Arrival(
            self._messages[message.request_id],
            0,
            NOW + timedelta(seconds=DAY),
            held=True,
            replay_of=replay,
            target=self._pushes.target,
        )
        stored, works = self._rows.ingest(state.stored, worker.id, arrival)
        self._check_changes(state.stored, stored)
        for work in works:
            row = next(row for row in stored.rows if field(row, "id") == work.id)
            self._works.setdefault(row, work)
            worker = worker.with_hand(Hand(row))
        return state._replace(stored=stored).with_worker(worker)

    def _cancellation_ingested(self, state: State, worker: Worker, message: Message) -> State:
        request = CancellationRequest(message.request_id, "acc", "acc", NOW + timedelta(milliseconds=2))
        stored, noted = self._rows.cancel(state.stored, replace(request, revision=message.revision))
        state = state._replace(stored=stored)
        for on in noted.values():
            for hand in worker.hands:
                if hand.request_id != on.request_id or on.held_by != worker.id:
                    continue
                if hand.asked or hand.answers:
                    if hand.cancelled_after is None:
                        worker = worker.with_hand(hand._replace(cancelled_after=len(hand.answers)))
                elif field(hand.row, "cancel_requested_at") is None:
                    row = state.stored.row(on.request_id)
                    assert row is not None
                    state, worker = state.with_row(self._rows.release(stored, row, worker.id)), worker.without(hand.id)
        return state.with_worker(worker)

    # --- workers ---

    def _works_on(self, state: State, meant: str) -> Steps:
        for worker in state.workers:
            if worker.stopped:
                continue
            for hand in worker.hands:
                if not hand.asked and hand.request_id[0] == meant:
                    yield from self._goes_on(state, worker, hand)
            if worker.name == state.owner:
                yield from self._claims(state, worker, meant)

    def _claims(self, state: State, worker: Worker, meant: str) -> Steps:
        for row in state.stored.rows:
            name = field(row, "request_id")
            if name[0] != meant:
                continue
            after, work = self._rows.claim(state.stored, row, worker.id, self._pushes.target)
            if work is not None:
                self._works.setdefault(after, work)
                yield f"{worker.id} claims {name}", state.with_row(after).with_worker(worker.with_hand(Hand(after)))
            after, work = self._rows.claim_expired(state.stored, row, worker.id)
            if work is not None:
                decided = ended_at_the_deadline(work)
                last = self._rows.record(state.stored, after, worker.id, ("deadline", after), decided)
                self._check_change(row, last)
                yield f"{worker.id} ends {name}, whose deadline has passed", state.with_row(last)

    def _goes_on(self, state: State, worker: Worker, hand: Hand) -> Steps:
        name, seen, work, row = (
            hand.request_id,
            worker.seen_of(hand.id),
            self._works[hand.row],
            state.stored.row(hand.request_id),
        )
        assert row is not None
        key = (hand.row, hand.answers, seen, hand.lost_after, hand.cancelled_after)
        match self._pushes.step(key, work, [_ANSWERS[each] for each in hand.answers], seen, *key[3:]):
            case Asks("intend"):
                marked, may = self._rows.mark_pushing(state.stored, row, worker.id)
                answered = worker.with_hand(hand._replace(answers=(*hand.answers, "yes" if may else "no")))
                yield f"{worker.id} notes the intent to push {name}", state.with_row(marked).with_worker(answered)
            case Asks(what):
                self._check_request(state, worker, hand, what)
                yield (
                    f"{worker.id} sends: {what} {name}",
                    state.with_worker(worker.with_hand(hand._replace(asked=what))),
                )
            case GivesBack():
                after = self._rows.release(state.stored, row, work.leased_by)
                yield f"{worker.id} gives {name} back", state.with_row(after).with_worker(worker.without(hand.id))
            case Decides(decision, seen_then):
                # Under the id that it leased the row with, as a worker does that has not yet noticed that its lease is lost.
                after = self._rows.record(state.stored, row, work.leased_by, key, decision)
                self._check_change(row, after)
                text = f"{worker.id} records {name}: {getattr(decision, 'status', 'to be tried again')}"
                recorded = worker.with_seen(hand.id, seen_then).without(hand.id)
                yield (
                    text + (", which changes nothing" if after == row else ""),
                    state.with_row(after).with_worker(recorded),
                )

    # --- the PMS ---

    def _answered(self, state: State, meant: str) -> Steps:
        for worker in state.workers:
            for hand in worker.hands:
                for fault, answer, booked in (
                    self._answers(state, hand) if hand.asked and hand.request_id[0] == meant else ()
                ):
                    if not fault or self._can(state, fault):
                        told = worker.with_hand(hand._replace(answers=(*hand.answers, answer), asked=""))
                        text = f"{hand.asked} {hand.request_id}: the PMS answers {answer} ({fault or 'as it should'})"
                        after = state.with_booked(hand.request_id, booked).with_worker(told)
                        yield text, after._replace(faults=state.faults | {fault}) if fault else after

    def _arrives_late(self, state: State) -> Steps:
        for name, booked in state.pms:
            for place, (seconds, shown) in enumerate(booked.flying):
                rest = booked.flying[:place] + booked.flying[place + 1 :]
                yield (
                    f"the PMS makes {name}, late",
                    state.with_booked(name, _made(booked._replace(flying=rest), self._key)),
                )
                if seconds <= 0.0:
                    yield f"a create of {name} never arrives", state.with_booked(name, booked._replace(flying=rest))
                if self._can(state, "shown late"):
                    late = _made(booked._replace(flying=rest), self._key)._replace(hidden=shown)
                    after = state.with_booked(name, late)._replace(faults=state.faults | {"shown late"})
                    yield f"the PMS makes {name}, late, and does not show it yet", after

    def _answers(self, state: State, hand: Hand) -> Iterator[tuple[str, str, Booked]]:
        """Each with the fault that it is, if it is one, and what the PMS has then."""
        booked = state.booked(hand.request_id)
        if hand.asked == "find":
            yield "", "shown" if booked.stands and booked.hidden <= 0.0 else "absent", booked
            yield "look-up fails", "down", booked
        elif hand.asked == "cancel":
            yield "", "cancelled", booked._replace(cancelled=booked.made)
            yield "cancellation unanswered", "down", booked._replace(cancelled=booked.made)
        else:
            made = _made(booked, self._key)
            late = made._replace(hidden=self._settles)
            yield "", "made", made._replace(yes=True)
            yield "answer lost", "lost", made
            yield "request lost", "lost", booked
            yield "shown late", "lost", late
            yield "committed late", "lost", booked._replace(flying=(*booked.flying, (self._settles, self._settles)))
            yield "positive without proof", "positive", late._replace(yes=True)
            if not (self._key and booked.made):  # a PMS that keeps the key answers as it did
                yield "refused", "refused", booked
            yield "down", "down", booked

    # --- time ---

    def _time_passes(self, state: State) -> Steps:
        """Until the next moment at which anything can happen by itself."""
        waits = [LEASE - age for _, age in state.ended]
        for row in state.stored.rows:
            if field(row, "leased_by") is None:
                waits += [each for name in ("due_at",) if (each := seconds_until(row, name)) is not None]
        for _, booked in state.pms:
            waits += [booked.hidden, *(seconds for seconds, _ in booked.flying)]
        coming = [each for each in waits if each > 0.0]
        if coming:
            yield f"{min(coming):.0f} s pass", self._later(state, min(coming))

    def _later(self, state: State, seconds: float) -> State:
        workers = tuple(
            each._replace(
                seen=tuple((row_id, (*known[:2], min(known[2] + seconds, DAY))) for row_id, known in each.seen if known)
            )
            for each in state.workers
        )
        pms = tuple(
            (
                name,
                each._replace(
                    hidden=max(each.hidden - seconds, 0.0),
                    flying=tuple((max(one - seconds, 0.0), max(other - seconds, 0.0)) for one, other in each.flying),
                ),
            )
            for name, each in state.pms
        )
        ended = tuple((worker_id, min(age + seconds, LEASE)) for worker_id, age in state.ended)
        after = state._replace(workers=workers, pms=pms, ended=ended)
        return after._replace(
            stored=state.stored._replace(rows=tuple(later(row, seconds) for row in state.stored.rows))
        )

    # --- mishaps ---

    def _mishaps(self, state: State) -> Steps:
        for worker_id, age in state.ended:
            if lease_is_over(age) and worker_id in state.stored.leases:
                stored = self._rows.take_over(state.stored, worker_id)
                left = tuple(each for each in state.ended if each[0] != worker_id)
                after = state._replace(stored=stored, ended=left, owner=self._owner_without(state, worker_id))
                yield f"the lease of {worker_id} is over, its rows are due", after
        for worker in state.workers:
            if worker.stopped and worker.id not in state.stored.leases:
                yield f"{worker.id} goes on, and finds its lease lost", self._wakes(state, worker)
        for fault, text, after in self._strikes(state) if len(state.faults) < self._bound.faults else ():
            if self._can(state, fault):
                yield text, after._replace(faults=state.faults | {fault})

    def _owner_without(self, state: State, worker_id: str) -> int:
        """The log, too, has noticed that a suspended worker is gone."""
        suspended = state.workers[state.owner].stopped and state.workers[state.owner].id == worker_id
        awake = [worker.name for worker in state.workers if not worker.stopped]
        return awake[0] if suspended and awake else state.owner

    def _wakes(self, state: State, worker: Worker) -> State:
        hands = tuple(
            hand._replace(lost_after=len(hand.answers) if hand.asked else len(hand.answers) - 1)
            for hand in worker.hands
        )
        awake = worker._replace(stopped=False, life=worker.life + 1, hands=hands)
        leases = (*state.stored.leases, awake.id)
        return state._replace(stored=state.stored._replace(leases=leases)).with_worker(awake)

    def _strikes(self, state: State) -> Iterator[tuple[str, str, State]]:
        for worker in state.workers:
            if not worker.stopped:
                yield "crash", f"{worker.id} dies", self._dies(state, worker)
                if worker.hands:
                    ended = (*state.ended, (worker.id, 0.0))
                    stopped = state.with_worker(worker._replace(stopped=True))._replace(ended=ended)
                    yield "stopped past its lease", f"{worker.id} is suspended", stopped
        for name in state.sent:
            yield from self._sends_again(state, name)
            if name.endswith("1") and name not in state.cancelled:
                row = state.stored.row(name)
                if row is None or field(row, "status") not in ("REJECTED", "FAILED", "CANCELLED"):
                    revision = 0 if row is None else field(row, "revision")
                    asked = state._replace(
                        cancelled=(*state.cancelled, name), log=(*state.log, Message("cancel", name, revision))
                    )
                    yield "caller cancels", f"{name} is cancelled by its caller", asked
        if state.position:
            yield "redelivered", "the log is delivered again", state._replace(position=0)
        if len(state.workers) > 1:
            other = (state.owner + 1) % len(state.workers)
            yield "rebalanced", f"the partition goes to worker-{other}", state._replace(owner=other)
        away = self._all_away(state)
        if away is not None:
            text = "the workers stop, and come back a day later"
            yield "outage until the deadline", text, self._later(away, DAY)
        for row in state.stored.rows:
            if field(row, "status") == "FAILED":
                name, revision = field(row, "request_id"), field(row, "revision")
                replayed = state._replace(log=(*state.log, Message("replay", name, revision)))
                yield "dead letter replayed", f"the dead letter of {name} is replayed", replayed

    def _all_away(self, state: State) -> State | None:
        """All rows given back, as by workers that are told to stop; None while a push is under way."""
        hands = [hand for worker in state.workers for hand in worker.hands]
        under_way = any(hand.asked or hand.answers for hand in hands) or any(each.flying for _, each in state.pms)
        if under_way or state.ended or not state.stored.rows:
            return None
        for worker in state.workers:
            for hand in worker.hands:
                row = state.stored.row(hand.request_id)
                assert row is not None
                state = state.with_row(self._rows.release(state.stored, row, self._works[hand.row].leased_by))
            state = state.with_worker(worker._replace(hands=()))
        return state

    def _sends_again(self, state: State, name: str) -> Iterator[tuple[str, str, State]]:
        """By either ingress; one of them accepted the first. One with a key has the same request id again."""
        natural = self._messages[name].natural
        assert natural is not None
        again = name if natural.keyed else name[0] + "2"
        if name.endswith("2") or name in state.cancelled or (again in state.sent and again != name):
            return
        mine = state.stored._replace(
            rows=tuple(row for row in state.stored.rows if field(row, "request_id")[0] == name[0])
        )
        for ingress in (1, 2) if self._can(state, "answer to the caller lost") else ():
            accepted = [self._messages[each] for each in state.sent if each.endswith("1")] if ingress == 1 else []
            text = f"the answer to {name} is lost, and its caller sends it again as {again}, to ingress {ingress}"
            given = None if natural.keyed else self._rows.recognised(mine, accepted, self._messages[again])
            if given is None:
                yield "answer to the caller lost", text, self._published(state, again)
                continue
            row = state.stored.row(state.stored.originals().get(given, given))
            if row is None or field(row, "status") in ("REJECTED", "FAILED", "CANCELLED"):
                raise Violation(f"{again} is answered with {given}, of which nothing comes")
            known = state._replace(sent=(*state.sent, again), receipts=(*state.receipts, (again, given)))
            yield "answer to the caller lost", f"{text}, which knows it as {given}", known

    def _dies(self, state: State, worker: Worker) -> State:
        for hand in worker.hands:
            if hand.asked == "create":
                booked = state.booked(hand.request_id)
                flying = booked._replace(flying=(*booked.flying, (LEASE + PUSH, LEASE + PUSH + self._settles)))
                state = state.with_booked(hand.request_id, flying)
        born = Worker(worker.name, worker.life + 1)
        leases = (*state.stored.leases, born.id)
        state = state._replace(ended=(*state.ended, (worker.id, 0.0)))
        return state._replace(stored=state.stored._replace(leases=leases)).with_worker(born)

    # --- what must hold ---

    def _check_request(self, state: State, worker: Worker, hand: Hand, what: str) -> None:
        if hand.lost_after is not None and worker.id != self._works[hand.row].leased_by:
            raise Violation(f"{worker.id} sends for {hand.request_id}, whose lease it has lost")
        if what != "create":
            return
        if state.booked(hand.request_id).yes and not self._key:
            raise Violation(f"{hand.request_id} is created again after a positive answer")
        if hand.cancelled_after is not None and len(hand.answers) > hand.cancelled_after:
            raise Violation(f"{hand.request_id} is sent after {worker.id} ingested its cancellation")
        if field(hand.row, "cancel_requested_at") is not None and not self._key:
            raise Violation(f"{hand.request_id} is sent though its row shows its cancellation")

    def _check_changes(self, before: Stored, after: Stored) -> None:
        for row in after.rows:
            was = before.row(field(row, "request_id"))
            self._check_change(was, row)

    def _check_change(self, before: Row | None, after: Row) -> None:
        was, now = "" if before is None else field(before, "status"), field(after, "status")
        name = field(after, "request_id")
        if was != now and (was, now) not in _CHANGES:
            raise Violation(
                f"{name} became {now} from {was or 'nothing'}, which is no transition of the product's table"
            )
        if (
            before is not None
            and was != now
            and field(after, "revision") != field(before, "revision") + (now != "PENDING")
        ):
            raise Violation(f"{name} became {now} without a new revision")

    def check(self, state: State) -> None:
        """What must hold in each state. Raises `Violation`."""
        made: dict[str, int] = {}
        for name, booked in state.pms:
            made[name[0]] = made.get(name[0], 0) + booked.made
            if made[name[0]] > 1:
                raise Violation(f"{name[0]} was made {made[name[0]]} times")
        originals = {**dict(state.receipts), **state.stored.originals()}
        waiting = {each.request_id for each in state.log[state.position :]}
        for name in state.sent:
            row = state.stored.row(originals.get(name, name))
            if row is None:
                if name not in waiting:
                    raise Violation(f"{name} was accepted, and is nowhere")
                continue
            self._check_row(state, row)
        cancelled = [name for name in state.cancelled if name not in waiting]
        for name in cancelled:
            row = state.stored.row(originals.get(name, name))
            parked = any(name in each for each in state.stored.parked)
            if row is None or parked or field(row, "cancel_requested_at") is not None:
                continue
            if field(row, "status") not in ("FAILED", "REJECTED"):
                raise Violation(f"the cancellation of {name} was ingested, and is nowhere")

    def _check_row(self, state: State, row: Row) -> None:
        name, status, due = field(row, "request_id"), field(row, "status"), field(row, "due_at")
        booked, cancelling = state.booked(name), field(row, "cancel_requested_at") is not None
        arrives = booked.flying and not (self._key and booked.made)
        unknown = bool(arrives) or any(
            hand.request_id == name and hand.asked == "create" and hand.lost_after is None
            for worker in state.workers
            for hand in worker.hands
        )
        if status in ("REJECTED", "FAILED", "CANCELLED") and (booked.stands or unknown):
            raise Violation(f"{name} is {status}, and the PMS {'has it' if booked.stands else 'may still make it'}")
        if status == "CONFIRMED":
            if not booked.made or (booked.cancelled and not cancelling):
                raise Violation(f"{name} is CONFIRMED, and the PMS does not have it")
            if field(row, "pms_reservation_id") != "pms":
                raise Violation(f"{name} is CONFIRMED as {field(row, 'pms_reservation_id')}")
        refused = field(row, "cancel_problem") is not None
        if due is None and (status == "PENDING" or (status == "CONFIRMED" and cancelling and not refused)):
            raise Violation(f"{name} is {status}, and nothing is due")
        if status in _FINAL and field(row, "leased_by") is not None and not (status == "CONFIRMED" and cancelling):
            raise Violation(f"{name} is {status}, and still held")

    def check_end(self, state: State) -> None:
        """What must hold where nothing more happens by itself: everything has ended, or waits for an operator."""
        self.check(state)
        if any(worker.stopped for worker in state.workers):
            return
        for row in state.stored.rows:
            name, status = field(row, "request_id"), field(row, "status")
            if status == "IN_DOUBT" and field(row, "due_at") is None:
                continue
            if status not in _FINAL:
                raise Violation(f"{name} stays {status} for ever")
            unanswered = field(row, "cancel_problem") is None
            if field(row, "cancel_requested_at") is not None and status == "CONFIRMED" and unanswered:
                raise Violation(f"{name} was cancelled, and stays CONFIRMED")
            for each in state.sent:
                if each not in state.cancelled and status == "CANCELLED" and each == name:
                    raise Violation(f"{name} is CANCELLED, and nobody asked for that")


def _made(booked: Booked, key: bool) -> Booked:
    return booked if key and booked.made else booked._replace(made=booked.made + 1)


def _submission(meant: str, copy: int) -> Submission:
    number = "abc".index(meant) + 1
    natural = NaturalKey(
        f"key-{meant}", window_seconds=300, keyed=meant == "b", same=f"same-{meant}", stay=f"stay-{meant}"
    )
    given = submission(number)
    return replace(
        given,
        request_id=f"{meant}{copy}",
        accepted_at=NOW + timedelta(milliseconds=copy - 1),
        natural=natural,
    )
