"""The judge: what must hold of a case once it is quiet, looked for in everything that can be seen from outside. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from forwarder.reservation.outcome import Status
from forwarder.reservation.record import EVENT_TYPES
from tests.fault.campaign.ledger import Event
from tests.fault.campaign.load import Submission, accepted
from tests.fault.campaign.reading import Record

_NAMED_AT_MOST = 5
_OK_ANSWERS = frozenset({"200", "201", "202", "503", "none"})
_MAY_BE_MADE = frozenset({"CONFIRMED", "CANCELLED", "IN_DOUBT", "PENDING"})
_ANNOUNCED = {status.value: kind for status, kind in EVENT_TYPES.items()}


@dataclass(frozen=True, slots=True)
class Expected:
    """How the submissions of a case may stand in the end, and whether every one of them must have been accepted."""

    statuses: AbstractSet[str] = frozenset({Status.CONFIRMED.value})
    all_accepted: bool = False
    answers: AbstractSet[str] = _OK_ANSWERS


ALL_CONFIRMED = Expected()


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of one case. `pages` are read whole at the end, by account, and `polled` is what a reader saw, by account,
    that followed them meanwhile. `made` counts by reference, which is the request id."""

    submissions: Sequence[Submission]
    answers: Mapping[str, int]
    unknown: Sequence[str]
    logged: AbstractSet[str]
    pages: Mapping[str, Sequence[Record]]
    polled: Mapping[str, Sequence[str]]
    made: Mapping[str, int]
    events: Mapping[str, Sequence[Event]]

    @property
    def accepted(self) -> AbstractSet[str]:
        return accepted(self.submissions)

    @property
    def records(self) -> Sequence[Record]:
        return [record for records in self.pages.values() for record in records]

    @property
    def statuses(self) -> Mapping[str, str]:
        return {record["requestId"]: record["status"] for record in self.records}

    @property
    def known(self) -> Sequence[int]:
        """How much there is to judge, which changes for as long as anything comes."""
        finished = sum(status != Status.PENDING for status in self.statuses.values())
        return [len(self.logged), len(self.records), finished, sum(map(len, self.events.values()))]

    @property
    def lost(self) -> AbstractSet[str]:
        """What was accepted, or is on the log, and is not in the store's pages."""
        return (self.accepted | self.logged) - self.statuses.keys()

    @property
    def made_twice(self) -> Sequence[str]:
        return [reference for reference, times in self.made.items() if times > 1]

    def is_quiet(self, expected: Expected) -> bool:
        """Whether nothing is left to come: all that the log took is in the store, finished and announced. What may stay pending is
        nothing that was made."""
        statuses = self.statuses
        pending = {request_id for request_id, status in statuses.items() if status == Status.PENDING}
        waited_for = pending & self.made.keys() if Status.PENDING in expected.statuses else pending
        return not self.lost and not waited_for and not list(_unannounced(statuses, self.events))


def judge(evidence: Evidence, expected: Expected) -> list[str]:
    """What does not hold, in words, each with a few of the request ids that show it; nothing where all is as it must be."""
    statuses = evidence.statuses
    confirmed = {request_id for request_id, status in statuses.items() if status == Status.CONFIRMED}
    possible = {request_id for request_id, status in statuses.items() if status in _MAY_BE_MADE}
    found = {
        "accepted, and not on the log": evidence.accepted - evidence.logged,
        "lost": evidence.lost,
        "made twice": evidence.made_twice,
        "CONFIRMED, and not made": confirmed - evidence.made.keys(),
        "made, and not CONFIRMED": evidence.made.keys() - possible,
        "in the store, and never on the log": statuses.keys() - evidence.logged,
        "accepted, and its status said not to exist": evidence.unknown,
        f"not {' or '.join(sorted(expected.statuses))}": [
            f"{request_id} {status}" for request_id, status in statuses.items() if status not in expected.statuses
        ],
        "not accepted": [s.room for s in evidence.submissions if expected.all_accepted and not s.accepted],
        "answered otherwise than it may be": evidence.answers.keys() - expected.answers,
        "two request ids for one key": [str(s.request_ids) for s in evidence.submissions if len(s.request_ids) > 1],
        "two records of one submission": _repeated(record["roomId"] for record in evidence.records),
        "twice in the pages": _repeated(record["requestId"] for record in evidence.records),
        **_about_events(statuses, evidence.events),
        **_about_polling(evidence),
    }
    return [_worded(what, list(which)) for what, which in found.items() if which]


def _about_events(statuses: Mapping[str, str], events: Mapping[str, Sequence[Event]]) -> Mapping[str, Sequence[str]]:
    return {
        "final, and not announced": list(_unannounced(statuses, events)),
        "announced under one id with two contents": [
            request_id for request_id, all_of_it in events.items() if len(_contents(all_of_it)) > len(_ids(all_of_it))
        ],
        "confirmed under two ids": [
            request_id
            for request_id, all_of_it in events.items()
            if len(_ids(event for event in all_of_it if event.type == _ANNOUNCED["CONFIRMED"])) > 1
        ],
        "announced out of order": [request_id for request_id, all_of_it in events.items() if _unordered(all_of_it)],
    }


def _about_polling(evidence: Evidence) -> Mapping[str, Iterable[str]]:
    there = {record["requestId"] for account in evidence.polled for record in evidence.pages[account]}
    polled = [request_id for seen in evidence.polled.values() for request_id in seen]
    return {"shown twice to a poller": _repeated(polled), "never shown to a poller": there - set(polled)}


def _unannounced(statuses: Mapping[str, str], events: Mapping[str, Sequence[Event]]) -> Iterator[str]:
    """Those whose latest event does not say how they stand."""
    for request_id, status in statuses.items():
        latest = max(events.get(request_id, ()), key=lambda event: event.revision, default=None)
        if status in _ANNOUNCED and (latest is None or latest.type != _ANNOUNCED[status]):
            yield request_id


def _unordered(events: Sequence[Event]) -> bool:
    """Whether a later revision was first announced before an earlier one."""
    first_seen = list(dict.fromkeys(event.revision for event in events))
    return first_seen != sorted(first_seen)


def _ids(events: Iterable[Event]) -> set[str]:
    return {event.id for event in events}


def _contents(events: Iterable[Event]) -> set[tuple[str, str, bytes]]:
    return {(event.id, event.type, event.value) for event in events}


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]


def _worded(what: str, which: Sequence[str]) -> str:
    shown = ", ".join(sorted(which)[:_NAMED_AT_MOST])
    return f"{what}: {len(which)} ({shown}{', …' if len(which) > _NAMED_AT_MOST else ''})"
