"""The evidence of one submission: each push, its target and its result; and the next step that follows from it. Pure.

`next_step` decides, in this order. A push is *open* until it is settled: by a look-up that finds it, by absences that are
believed, or by an operator.

| open pushes | further condition | next step |
|---|---|---|
| none | the last create was refused, in known words, while an earlier one was open | `Refuse`: the refusal counts now |
| none | may be created | `Create` |
| none | deadline passed, cancelled, or no longer allowed by the rules | `NotMade` |
| any | one went to another PMS or credential than the account has now | `Park` (`pms_is_another`): nothing is sent |
| a positive one (2xx, an id, "exists already") | can be looked up | `LookUp`; after 30 minutes `Park`, and looked up all the same |
| a positive one | cannot be looked up; every open push carried a key that still lasts | `SendAgain` under the key |
| a positive one | otherwise | `Park` (`cannot_be_checked`) |
| ambiguous ones only | all carried a key that lasts; no look-up, or under three and none refused | `SendAgain` under the key |
| ambiguous ones only | cannot be looked up | `Park` (`cannot_be_checked`) |
| ambiguous ones only | absence not believed yet | `LookUp` |
| ambiguous ones only | absence believed, three creates were ambiguous | `Park` (`created_three_times`); with a key `SendAgain` |
| ambiguous ones only | absence believed | as in the rows for none |

An absence is believed when it was seen twice since the last open push: first no sooner than `settles` after that push, then at
least half of `settles` later. If its worker died, the push may have gone on for the push time-out, and the second must come
`settles` after that. If the PMS shows bookings at once (`immediate`), one absence after the push time-out is enough.
Any refusal that follows an open push counts as ambiguous, because our own earlier booking may have caused it.
A refusal in words that the adapter does not know never becomes the answer: once the absence is believed, it is created again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final, Literal

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder, Encoder, decode
from msgspec.structs import replace

from forwarder.reservation.outcome import Confirmed, Deferred, InDoubt, Outcome, Rejected
from forwarder.reservation.parsing import moment
from forwarder.reservation.problems import PMS_REFUSED, Problem
from forwarder.reservation.record import anonymous_problem

MAX_CREATES: Final = 3  # how many creates of one submission may be ambiguous before an operator must decide

KEY_SECONDS: Final = 24 * 3600.0  # how long a PMS keeps an idempotency key, unless its kind states another time
PATIENCE_SECONDS: Final = 1800.0  # how long a positive answer is looked up before an operator is asked to help, too

UNSURE_REFUSALS: Final = frozenset({"pms_refused_in_words", "pms_refused_request"})
"""A PMS refused in words, or with a status, unknown to its adapter: nothing was made, maybe because of our own earlier booking."""

WORKER_LOST: Final = "worker_lost"  # the reason of a push that may have been sent by a worker that died
_FIRST_LOOK_SECONDS: Final = 5.0
_ALIKE_KEPT: Final = 40


class Target(Struct, frozen=True, omit_defaults=True):
    """The destination of a push, and the key or reference that make it safe to repeat or possible to find. `pms`: kind and address,
    `credential` (a keyed hash) the credential; empty if not recorded. `reference`: the form of our reference (`id`: unchanged);
    empty if the PMS cannot be searched for it. `key`: whether it has an idempotency key."""

    pms: str = ""
    credential: str = ""
    reference: str = ""
    key: bool = False

    def same_pms(self, other: "Target") -> bool:
        """Whether both are the same PMS and account there, as far as recorded."""
        credentials = {self.credential, other.credential}
        return self.pms == other.pms and ("" in credentials or len(credentials) == 1)

    @property
    def text(self) -> str:
        """The form stored with leased rows. Begins with a space if neither key nor reference can check a push afterwards."""
        return ("" if self.key or self.reference else " ") + _encode(self).decode()


UNKNOWN_TARGET: Final = Target()  # The target of a push without a record. It can neither be looked up nor repeated.
_encode: Final = Encoder().encode


def read_target(text: str) -> Target:
    return decode(text, type=Target) if text else UNKNOWN_TARGET


class Came(StrEnum):
    """The kind of a push's result. `MADE`: confirmed; it settles all earlier pushes."""

    MADE = "made"
    POSITIVE = "positive"
    AMBIGUOUS = "ambiguous"
    NO = "no"


class Push(Struct, frozen=True, omit_defaults=True, tag="push"):
    """One create, or one that may have been sent by a worker that died. `at`: when it ended (ISO 8601), or when another worker took
    over; then it was sent after `since`. `problem`: the refusal."""

    at: str
    to: Target
    came: Came
    reason: str = ""
    status: int | None = None
    pms_id: str | None = None
    problem: Mapping[str, Any] | None = None
    times: int = 1
    since: str = ""

    @property
    def began(self) -> str:
        """The earliest time at which it may have been sent."""
        return self.since or self.at


class Absence(Struct, frozen=True, omit_defaults=True, tag="absent"):
    """A look-up with a complete list, without our booking. `after`: seconds since the last open push."""

    at: str
    after: float
    times: int = 1


class Settled(Struct, frozen=True, omit_defaults=True, tag="settled"):
    """All earlier pushes are settled. `by`: `look-up`, or `operator`."""

    at: str
    by: Literal["look-up", "operator"] = "look-up"


Line = Push | Absence | Settled

_decode: Final[Callable[[str], Line]] = Decoder(Line).decode


@dataclass(frozen=True, slots=True)
class Evidence:
    """The recorded pushes of one submission and their look-ups, oldest first."""

    lines: tuple[Line, ...] = ()

    @property
    def text(self) -> str:
        """The stored form: one JSON object a line."""
        return "\n".join(_encode(line).decode() for line in self.lines)

    @property
    def anonymous(self) -> "Evidence":
        """Without the PMS's words, which may name the guest."""
        lines = (
            replace(line, problem=anonymous_problem(line.problem)) if isinstance(line, Push) and line.problem else line
            for line in self.lines
        )
        return Evidence(tuple(lines))

    @property
    def pushes(self) -> Sequence[Push]:
        return [line for line in self.lines if isinstance(line, Push)]

    @property
    def open(self) -> Sequence[Push]:
        """The pushes that may have made a reservation."""
        found: list[Push] = []
        for line in reversed(self.lines):
            if isinstance(line, Settled) or (isinstance(line, Push) and line.came is Came.MADE):
                break
            if isinstance(line, Push):
                found.append(line)
        return found[::-1]

    @property
    def absences(self) -> Sequence[Absence]:
        """The absences since the last push."""
        last = takewhile(lambda line: isinstance(line, Absence), reversed(self.lines))
        return [line for line in last if isinstance(line, Absence)][::-1]

    @property
    def doubted(self) -> Sequence[Push]:
        """The pushes since an operator last settled it, including those that look-ups have settled since."""
        settled = [n for n, line in enumerate(self.lines, 1) if isinstance(line, Settled) and line.by == "operator"]
        return [line for line in self.lines[max(settled, default=0) :] if isinstance(line, Push)]

    @property
    def ambiguous_creates(self) -> int:
        """How many of the `doubted` pushes ended without a refusal. Excludes lost workers, which are not the PMS's fault."""
        return sum(one.times for one in self.doubted if one.reason != WORKER_LOST and one.came is not Came.NO)

    @property
    def number(self) -> int:
        """Changes with each push."""
        return sum(push.times for push in self.pushes)

    @property
    def refusal(self) -> Problem | None:
        """The PMS's refusal of the last create, in words that its adapter knows, if an earlier push was open then."""
        last = next(reversed(self.pushes), None)
        if last is None or last.came is not Came.NO or last.reason in UNSURE_REFUSALS:
            return None
        return PMS_REFUSED.problem("") if last.problem is None else Problem.from_json(last.problem)

    @property
    def origin(self) -> Push | None:
        """The push that made the reservation; None if its target was not recorded."""
        pushes = self.pushes
        made = next((push for push in reversed(pushes) if push.came is Came.MADE), pushes[-1] if pushes else None)
        return made if made is not None and made.to.pms else None

    @property
    def pms_id(self) -> str | None:
        """The id in the response to an open push."""
        return next((push.pms_id for push in reversed(self.open) if push.pms_id is not None), None)

    def after(self, outcome: Outcome, to: Target, at: str) -> "Evidence":
        """With the outcome of a create sent to `to`; unchanged if it was surely not made, or refused and nothing is in doubt."""
        match outcome:
            case Confirmed(pms_id):
                return self.found(pms_id, to, at)
            case InDoubt(reason) if outcome.made or outcome.pms_reservation_id is not None:
                push = Push(at, to, Came.POSITIVE, reason, outcome.status, outcome.pms_reservation_id)
            case InDoubt(reason):
                push = Push(at, to, Came.AMBIGUOUS, reason, outcome.status)
            case Rejected(problem) if self.doubted:
                push = Push(at, to, Came.NO, problem.code, problem=problem.as_json())
            case Deferred(reason) if self.doubted and reason in UNSURE_REFUSALS:
                push = Push(at, to, Came.NO, reason)
            case _:
                return self
        return self._with(push)

    def found(self, pms_id: str, to: Target, at: str) -> "Evidence":
        """With the reservation found at the PMS under that id."""
        return self._with(Push(at, to, Came.MADE, pms_id=pms_id))

    def absent(self, at: str, waited: float) -> "Evidence":
        """With a look-up that did not find it, `waited` seconds after the last open push."""
        # Bounded, because JSON has no infinity, which callers without a clock pass.
        return self._with(Absence(at, round(min(waited, 1e9), 3)))

    @property
    def words(self) -> Sequence[str]:
        """The evidence of the open pushes, as sentences for people."""
        said = [_sentence(push) for push in self.open]
        if looks := sum(one.times for one in self.absences):
            times = "once" if looks == 1 else f"{looks} times"
            said.append(f"It was looked up {times} since then, last at {self.absences[-1].at}, and was not shown.")
        return said

    def dated(self, at: str, since: str) -> "Evidence":
        """With `at` as the time of pushes without one, and `since` for lost workers' pushes that were not recorded again yet."""
        if all(not isinstance(line, Push) or (line.at and line.reason != WORKER_LOST) for line in self.lines):
            return self
        lines = list[Line]()
        for line in self.lines:
            lost = since if isinstance(line, Push) and line.reason == WORKER_LOST else ""
            known = replace(line, at=line.at or at, since=line.since or lost) if isinstance(line, Push) else line
            lines.append(known)
        return Evidence(tuple(lines))

    def settled(self, at: str, by: Literal["look-up", "operator"] = "look-up") -> "Evidence":
        return self._with(Settled(at, by)) if self.open else self

    def _with(self, line: Line) -> "Evidence":
        before = self.lines[-_ALIKE_KEPT:]
        last = self.lines[-1] if self.lines else None
        if len(before) < _ALIKE_KEPT or isinstance(line, Settled) or not all(_alike(line, one) for one in before):
            return Evidence((*self.lines, line))
        # The first of many equal ones decide; of the rest only the last is kept, with their number.
        return Evidence((*self.lines[:-1], replace(line, times=1 + getattr(last, "times", 0))))


def _alike(line: Line, other: Line) -> bool:
    if isinstance(line, Push) and isinstance(other, Push):
        return (line.to, line.came, line.pms_id) == (other.to, other.came, other.pms_id)
    return isinstance(line, Absence) and isinstance(other, Absence)


NOTHING_SENT: Final = Evidence()


@lru_cache(maxsize=1024)
def read_evidence(text: str) -> Evidence:
    """The inverse of `Evidence.text`. An unreadable line counts as a push without a known target."""
    return Evidence(tuple(map(_line, text.split("\n")))) if text else NOTHING_SENT


def _line(text: str) -> Line:
    try:
        return _decode(text)
    except (DecodeError, ValidationError):
        return Push("", UNKNOWN_TARGET, Came.AMBIGUOUS, "evidence_unreadable")


def _sentence(push: Push) -> str:
    when = f" at {push.at}" if push.at else ""
    again = f", {push.times} times" if push.times > 1 else ""
    answered = f"answered {push.status}" if push.status is not None else "gave no whole answer"
    match push.came:
        case Came.POSITIVE if push.pms_id is not None:
            return f"The PMS answered {push.status or 'that it was made'} with id {push.pms_id}{when}{again}."
        case Came.POSITIVE:
            return f"The PMS {answered}, and so has it{when}{again} ({push.reason})."
        case Came.NO:
            return f"The PMS refused a later create{when}{again} ({push.reason})."
        case Came.AMBIGUOUS if push.reason == WORKER_LOST:
            return f"A worker stopped{when}, perhaps after sending it."
        case _:
            return f"The PMS {answered}{when}{again} ({push.reason})."


# --- what to do next ---


@dataclass(frozen=True, slots=True)
class Facts:
    """The current capabilities of the account's PMS. `target`: of a push now. `settles`: seconds until a booking is surely shown, a
    late commit included; `immediate`: the PMS shows bookings at once. `push_seconds`: the push time-out. `key_seconds`: how long
    keys last. `same_before` (ISO 8601): an operator confirmed that all pushes before then went to this PMS."""

    target: Target
    settles: float = 120.0
    immediate: bool = False
    push_seconds: float = 30.0
    key_seconds: float = KEY_SECONDS
    same_before: str = ""

    def same_pms(self, push: Push) -> bool:
        """Whether that push went to the current PMS, and the same account there."""
        return self.target.same_pms(push.to) or push.began < self.same_before


@dataclass(frozen=True, slots=True)
class Create:
    """Create it: no earlier push can have made it."""


@dataclass(frozen=True, slots=True)
class SendAgain:
    """Send it again in `seconds`, under the key of the open pushes."""

    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class LookUp:
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Park:
    """An operator has to decide. `look`: the look-up that may settle it meanwhile."""

    reason: str
    detail: str
    look: LookUp | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """It was not made, and the PMS refused the last create."""

    problem: Problem


@dataclass(frozen=True, slots=True)
class NotMade:
    """It was not made, and must not be created any more."""


NextStep = Create | SendAgain | LookUp | Park | Refuse | NotMade


def next_step(evidence: Evidence, facts: Facts, now: datetime, waited: float, *, may_create: bool) -> NextStep:
    """By the table at the top of this module. `waited`: seconds since the last open push, by the calling worker's clock."""
    pushes = evidence.open
    if not pushes:
        return _nothing_open(evidence, may_create=may_create)
    if not all(facts.same_pms(push) for push in pushes):
        if all(push.to.pms for push in pushes):
            return Park("pms_is_another", ANOTHER_PMS)
        return Park("cannot_be_checked", "It may have been made, by a push of which nothing was noted.")
    positive = any(push.came is Came.POSITIVE for push in pushes)
    can_look = bool(facts.target.reference) and all(push.to.reference == facts.target.reference for push in pushes)
    refused = pushes[-1].came is Came.NO
    keyed = facts.target.key and all(_key_lasts(push, facts, now, waited) for push in pushes)
    can_repeat = may_create and keyed
    repeat_first = can_repeat and not (can_look and (refused or evidence.ambiguous_creates >= MAX_CREATES))
    if positive and can_look:
        look = LookUp(_left(_later(evidence.absences), waited))
        if not evidence.absences or evidence.absences[-1].after < PATIENCE_SECONDS:
            return look
        return Park("made_and_not_shown", "The PMS said that it was made, and does not show it.", look)
    if repeat_first:
        return SendAgain(0.0 if positive else _left(facts.push_seconds, waited))
    if not can_look:
        why = "by a push that this PMS cannot be searched for"
        why = why if facts.target.reference else "and this PMS cannot be searched"
        return Park("cannot_be_checked", f"It may have been made, {why}.")
    after = _next_look(evidence.absences, facts, refused=refused, lost=pushes[-1].reason == WORKER_LOST)
    if after is not None:
        return LookUp(_left(after, waited))
    if evidence.ambiguous_creates >= MAX_CREATES and not refused:
        if can_repeat:
            return SendAgain()
        detail = "Three creates brought no clear answer, and the PMS shows none of them."
        return Park("created_three_times", detail, LookUp(_left(_later(evidence.absences), waited)))
    return _nothing_open(evidence, may_create=may_create)


def _nothing_open(evidence: Evidence, *, may_create: bool) -> NextStep:
    if evidence.open and (refusal := evidence.refusal) is not None:
        return Refuse(refusal)
    return Create() if may_create else NotMade()


def _key_lasts(push: Push, facts: Facts, now: datetime, waited: float) -> bool:
    sent = moment(push.began) if push.to.key else None
    # The PMS may have had the key since the push began, and may get it again as late as a push may last. Clocks may be set back.
    age = None if sent is None else max((now - sent).total_seconds(), waited) + 2 * facts.push_seconds
    return age is not None and age < facts.key_seconds


def _next_look(absences: Sequence[Absence], facts: Facts, *, refused: bool, lost: bool) -> float | None:
    """When after the last open push the next look-up makes sense; None if the absences so far are believed. `refused`: that push
    made nothing itself. `lost`: its worker died, so it may have gone on for the push time-out."""
    if facts.immediate:
        soonest = 0.0 if refused else facts.push_seconds
        return None if any(one.after >= soonest for one in absences) else soonest
    settles = max(facts.settles, facts.push_seconds)
    first = next((one.after for one in absences if one.after >= settles), None)
    if first is None:
        # Early look-ups cost little, and find most bookings.
        return min(max(facts.push_seconds, 2 * absences[-1].after if absences else 0.0), settles)
    second = max(first + settles / 2, facts.push_seconds + facts.settles if lost else 0.0)
    return None if any(one.after >= second for one in absences) else second


def _later(absences: Sequence[Absence]) -> float:
    """When to look up again a booking that must not be created again, in seconds after the last open push."""
    if not absences:
        return _FIRST_LOOK_SECONDS
    last = absences[-1].after
    return last + min(max(last, _FIRST_LOOK_SECONDS), 3600.0)


def _left(after: float, waited: float) -> float:
    return max(after - waited, 0.0)


ANOTHER_PMS: Final = (
    "It was sent to another address, or with another credential, than the account has now, so it is neither looked up nor "
    "cancelled there. Point the account back; or, if it is still the same account of the same PMS, run "
    "`forwarder account set ACCOUNT --same-pms`."
)
