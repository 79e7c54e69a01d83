"""What must be true of every history, decided from what callers, PMSs and readers of the results topic saw.

Knows nothing of rows, leases or workers. Each rule is a function from the record to sentences that say what is wrong.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from tests.net.record import Call, Event, Intent, Record
from tests.net.register import unplaced

PUSH_SECONDS: Final = 30.0
PROMPT_SECONDS: Final = 30.0
ENDS: Final = frozenset({"CONFIRMED", "REJECTED", "FAILED", "CANCELLED", "IN_DOUBT"})
_UNMADE: Final = frozenset({"REJECTED", "FAILED", "CANCELLED"})
_FOLLOWING: Final[Mapping[str, frozenset[str]]] = {
    "CONFIRMED": frozenset({"CONFIRMED", "CANCELLED"}),
    "REJECTED": frozenset(),
    "FAILED": ENDS,
    "IN_DOUBT": ENDS,
    "CANCELLED": frozenset(),
}

Rule = Callable[["Case"], Iterator[str]]


class Case:
    """A record, and what several rules read from it."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.intents_of: defaultdict[str, list[Intent]] = defaultdict(list)  # by the request id that callers were told
        for intent in record.intents:
            for call in intent.accepted:
                if call.request_id and intent not in self.intents_of[call.request_id]:
                    self.intents_of[call.request_id].append(intent)
        self.reads: defaultdict[str, list[Call]] = defaultdict(list)
        for call in record.calls:
            if call.what == "read" and call.ended is not None and self.is_own(call):
                self.reads[call.target].append(call)
        self.events: defaultdict[str, dict[int, Event]] = defaultdict(dict)  # in the order of their first publication
        for event in record.events:
            if event.revision:
                self.events[event.request_id].setdefault(event.revision, event)
        self.sent_at = {each.reference: each.at for each in reversed(record.creates)}  # first
        self.untraceable = record.untraceable()
        self.bookings = [each for each in record.bookings if each.reference not in self.untraceable]
        self.cancelled = {call.target for call in record.calls if call.what == "cancel"}  # or asked to be
        accepted = [each for each in record.calls if each.what == "cancel" and (each.status or 500) < 300]
        self.cancellations = [each for each in accepted if each.target not in record.gone]
        told = [(each.request_id, str(each.data["duplicateOf"])) for each in record.events if each.kind == "duplicate"]
        read = [(each.target, each.headers["duplicate-of"]) for each in record.calls if "duplicate-of" in each.headers]
        self.duplicate_of = dict(told + read)

    def is_own(self, call: Call) -> bool:
        """Whether a submission's own caller reads it."""
        return any(intent.account == call.account for intent in self.intents_of.get(call.target, ()))

    def is_gone(self, request_id: str) -> bool:
        """Whether the log lost it, and its caller did not send it again since."""
        calls = self.receipts(request_id)
        believed = min(call.ended or 0.0 for call in calls) + 5.0  # an ingress trusts the log for so long after a 2xx
        again = max((call.began for call in calls if call.began > believed), default=0.0)
        return self.record.gone.get(request_id, -1.0) > again

    def receipts(self, request_id: str) -> Sequence[Call]:
        """The requests that were answered with this id."""
        calls = [call for intent in self.intents_of[request_id] for call in intent.accepted]
        return [call for call in calls if call.request_id == request_id]

    def last(self, request_id: str) -> Mapping[str, Any]:
        """The status as it was read last."""
        reads = self.reads.get(request_id)
        return reads[-1].data if reads and reads[-1].status == 200 else {}

    def status(self, request_id: str) -> str:
        return str(self.last(request_id).get("status", ""))

    def ids(self) -> Sequence[tuple[str, Intent]]:
        """Each accepted submission that is one of its own, with an intent that it is of."""
        return [(each, intents[0]) for each, intents in self.intents_of.items() if each not in self.duplicate_of]

    def originals(self, request_ids: set[str]) -> set[str]:
        """What these are, under the names that they are made by."""
        return request_ids | {self.duplicate_of[each] for each in request_ids if each in self.duplicate_of}


def judge(record: Record) -> Sequence[str]:
    """Everything that is wrong with this history; empty if nothing is."""
    case = Case(record)
    return [f"{rule.__name__.strip('_')}: {wrong}" for rule in _RULES for wrong in rule(case)]


def _no_process_ended(case: Case) -> Iterator[str]:
    yield from case.record.ended
    for call in case.record.calls:
        if call.status == 500:
            yield f"{call.what} at {call.began:.2f} was answered with 500: {call.data}"


def _accepted_has_an_end(case: Case) -> Iterator[str]:
    for request_id, intent in case.ids():
        status = case.status(request_id)
        if status not in ENDS and not case.is_gone(request_id):
            yield f"{request_id} of caller {intent.number} is {status or 'unknown'} in the end"


def _made_once(case: Case) -> Iterator[str]:
    made = Counter(booking.reference for booking in case.bookings if not booking.doubled)
    yield from (f"{reference} was made {count} times" for reference, count in made.items() if count > 1)


def _wanted_once_stands_once(case: Case) -> Iterator[str]:
    """However often and by whatever name it was sent, unless its caller cancelled it or used another key."""
    cancelled = case.originals(case.cancelled)
    made = [each for each in case.bookings if not each.doubled and each.cancelled_at is None]
    standing = Counter((each.account, each.guest) for each in made if each.reference not in cancelled)
    wanted: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    keyed = {(each.account, each.content) for each in case.record.intents if each.key}
    for each in case.record.intents:
        if each.key or (each.account, each.content) not in keyed:
            wanted[each.account, each.body["guest"]["email"]].add(each.key or each.content)
    for guest, count in standing.items():
        if count > len(wanted[guest]):
            yield f"{guest} wants {len(wanted[guest])}, and has {count}"


def _nothing_is_swallowed(case: Case) -> Iterator[str]:
    """One id never stands for two different reservations."""
    for request_id, intents in case.intents_of.items():
        contents = {each.content for each in intents}
        keys = {each.key for each in intents if each.key}
        told = case.last(request_id).get("conflictingBody") or request_id in case.record.gone or case.record.losses
        if len(contents) > 1 and not told:  # a recovery forgets the note; the event was published
            yield f"{request_id} stands for {len(contents)} bodies, of callers {[each.number for each in intents]}"
        if len(keys) > 1:
            yield f"{request_id} stands for the keys {sorted(keys)}"
    for request_id, original in case.duplicate_of.items():
        for one in case.intents_of.get(request_id, ()):
            for other in case.intents_of.get(original, ()):
                if one.content != other.content or (one.key and other.key and one.key != other.key):
                    yield f"{request_id} of caller {one.number} was taken for {original} of caller {other.number}"


def _keys_say_the_same(case: Case) -> Iterator[str]:
    named: dict[tuple[str, str], str] = {}
    for request_id, intents in case.intents_of.items():
        for each in intents:
            if each.key and named.setdefault((each.account, each.key), request_id) != request_id:
                yield f"key {each.key} named {named[each.account, each.key]}, and {request_id}"


def _cancelled_is_not_sent(case: Case) -> Iterator[str]:
    for call in case.cancellations:
        ended = call.ended or 0.0
        for request_id in case.originals({call.target}):
            sent_at = case.sent_at.get(request_id, 0.0)
            if sent_at > ended + PUSH_SECONDS and case.record.calm(ended, sent_at):
                yield f"{request_id} was sent at {sent_at:.2f}, its cancellation was accepted at {ended:.2f}"
            told = (case.last(request_id).get("cancellation") or {}).get("status")
            if case.status(request_id) == "CONFIRMED" and told not in {"REFUSED", "FAILED"}:
                yield f"{request_id} is CONFIRMED after an accepted cancellation ({told})"


def _asked_again_is_another(case: Case) -> Iterator[str]:
    """Where a caller cancels, and asks again without a key at the same ingress."""
    cancelled = {(call.target, call.door): call.ended or 0.0 for call in case.cancellations}
    for call in (call for intent in case.record.intents if not intent.key for call in intent.accepted):
        at = cancelled.get((call.request_id or "", call.door), call.began)
        if at < call.began and case.status(call.request_id or "") == "CANCELLED":
            yield f"{call.request_id}, cancelled at {at:.2f}, was the answer to what was asked for at {call.began:.2f}"


def _statuses_are_true(case: Case) -> Iterator[str]:
    for request_id, intent in case.ids():
        if request_id in case.untraceable:
            continue
        own = [each for each in case.bookings if each.reference == request_id and each.cancelled_at is None]
        standing, status = [each.pms_id for each in own if not each.doubled], case.status(request_id)
        named = (case.last(request_id).get("record") or {}).get("pmsReservationId")
        if status == "CONFIRMED" and named not in {each.pms_id for each in own}:
            yield f"{request_id} is CONFIRMED as {named}, and the PMS has {standing} for caller {intent.number}"
        if status in _UNMADE and standing:
            yield f"{request_id} is {status}, and {standing} stand in the PMS"


def _nothing_else_is_cancelled(case: Case) -> Iterator[str]:
    for booking in case.record.bookings:
        if booking.cancelled_by == "forwarder" and booking.reference not in case.originals(case.cancelled):
            yield f"{booking.pms_id} of {booking.reference} was cancelled, and nobody asked for that"


def _doubt_has_a_reason_and_ends(case: Case) -> Iterator[str]:
    shown = set() if case.record.losses else case.record.lost_sight_of() - case.untraceable - case.record.interventions
    for request_id, intent in case.ids():
        odd = any(each.reference == request_id and not each.clean for each in case.record.creates)
        well = not odd and case.record.undisturbed() and intent.account not in case.record.unwell
        if well and case.status(request_id) in {"IN_DOUBT", "FAILED"}:
            yield f"{request_id} is {case.status(request_id)}, and nothing went wrong"
        if case.status(request_id) == "IN_DOUBT" and request_id in shown:
            yield f"{request_id} is IN_DOUBT in the end, and the PMS shows it"


def _events_are_in_order(case: Case) -> Iterator[str]:
    seen: dict[tuple[str, int], Event] = {}
    for event in case.record.events:
        if not event.revision:
            continue
        known = seen.setdefault((event.request_id, event.revision), event)
        if (known.kind, known.data) != (event.kind, event.data):
            yield f"revision {event.revision} of {event.request_id} is {known.kind} and {event.kind}"
        if event.revision > 1 and (event.request_id, event.revision - 1) not in seen:
            yield f"revision {event.revision} of {event.request_id} came before the one before it"
    for request_id, events in case.events.items():
        for one, other in pairwise(each.status for _, each in sorted(events.items())):
            if other not in _FOLLOWING[one]:
                yield f"{request_id}: {one} became {other}"


def _events_tell_the_end(case: Case) -> Iterator[str]:
    for request_id, _ in case.ids():
        events = [each for _, each in sorted(case.events.get(request_id, {}).items())]
        status, read_at = case.status(request_id), max((each.began for each in case.reads[request_id]), default=0.0)
        last = {each[-1].status for each in (events, [one for one in events if one.at < read_at]) if each}
        if status in ENDS and status not in last:  # a doubt may end while it is read
            yield f"{request_id} is {status}, and its last event is {last}"


def _workspaces_are_apart(case: Case) -> Iterator[str]:
    for call in case.record.calls:
        known = case.intents_of.get(call.target)
        if call.what == "read" and known and not case.is_own(call) and call.status == 200:
            yield f"{call.account} could read {call.target} of {known[0].account}"
    for create in case.record.creates:
        known = case.intents_of.get(create.reference)
        if known and known[0].account != create.account:
            yield f"{create.reference} of {known[0].account} was sent to the PMS of {create.account}"


def _nobody_waits_for_others(case: Case) -> Iterator[str]:
    """Where nothing went wrong for an account, its submissions are sent promptly."""
    for request_id, intent in case.ids():
        accepted = min(call.ended or 0.0 for call in case.receipts(request_id))
        sent_at = case.sent_at.get(request_id, float("inf"))
        if (
            sent_at <= accepted + PROMPT_SECONDS
            or intent.account in case.record.unwell
            or request_id in case.originals(case.cancelled)
        ):
            continue
        if case.record.calm(accepted - 1.0, accepted + PROMPT_SECONDS) and not case.is_gone(request_id):
            yield f"{request_id} of {intent.account}, accepted at {accepted:.2f}, was sent at {sent_at:.2f}"


def _reads_are_of_a_register(case: Case) -> Iterator[str]:
    for request_id, reads in case.reads.items():
        if not reads or not case.record.trusted(reads[0].began, reads[-1].ended or 0.0):
            continue
        own = case.duplicate_of.get(request_id, request_id)  # whose state is shown
        writes = [(each.at, each.status) for _, each in sorted(case.events.get(own, {}).items())]
        read = unplaced(writes, [each for each in reads if each.status == 200])
        if read is not None:
            yield f"{request_id} was read as {read.data['status']} at {read.began:.2f}; its events were {writes}"


def _doubles_are_told(case: Case) -> Iterator[str]:
    for reference in {each.reference for each in case.record.bookings if each.shown_with_double}:
        tried = [(each["action"], each["outcome"]) for each in case.last(reference).get("attempts") or []]
        told = any("otherPmsReservationIds" in each.data for each in case.events[reference].values())
        if ("find", "confirmed") in tried and not told and case.status(reference) == "CONFIRMED":
            yield f"{reference} is in the PMS twice, and nobody was told"


def _losses_are_noticed(case: Case) -> Iterator[str]:
    if (gone := case.record.gone.keys() - case.record.unseen) and not case.record.noticed:
        yield f"the log lost messages of {sorted(gone)}, and nobody was told"


_RULES: Final[Sequence[Rule]] = [
    _no_process_ended,
    _accepted_has_an_end,
    _made_once,
    _wanted_once_stands_once,
    _nothing_is_swallowed,
    _keys_say_the_same,
    _cancelled_is_not_sent,
    _asked_again_is_another,
    _statuses_are_true,
    _nothing_else_is_cancelled,
    _doubt_has_a_reason_and_ends,
    _events_are_in_order,
    _events_tell_the_end,
    _workspaces_are_apart,
    _nobody_waits_for_others,
    _reads_are_of_a_register,
    _doubles_are_told,
    _losses_are_noticed,
]
