"""What must hold at every moment, whatever happened; and what must have come about once all is well again."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic_core import from_json

from forwarder.reservation.submission import Submission
from forwarder.topics.codec import decode_data, header, is_cancellation, is_duplicate, is_outcome, subject
from forwarder.topics.port import Message
from tests.support.machine.site import CARD_NUMBER, Site
from tests.support.machine.worlds.log import TOPICS

_ENDED = {"CONFIRMED", "REJECTED", "FAILED", "CANCELLED"}
_FOLLOWING = {
    "CONFIRMED": {"CONFIRMED", "CANCELLED"},
    "REJECTED": set[str](),
    "FAILED": {"CONFIRMED", "REJECTED", "FAILED", "IN_DOUBT", "CANCELLED"},
    "IN_DOUBT": {"CONFIRMED", "REJECTED", "FAILED", "IN_DOUBT", "CANCELLED"},
    "CANCELLED": set[str](),
}
"""What each event's status may be followed by. CONFIRMED follows itself where a cancellation came to nothing."""
_STILL = {"CANCELLATION_REFUSED": "CONFIRMED", "CANCELLATION_FAILED": "CONFIRMED"}
_ROWS = """SELECT id, request_id, account_id, status, revision, due_at, leased_by, possibly_sent, pushing, card, record, attempts,
    pms_reservation_id, cancel_requested_at, cancel_problem FROM reservations ORDER BY id"""
_DUPLICATES = "SELECT request_id, duplicate_of FROM duplicates ORDER BY request_id"
_PARKED = "SELECT request_id FROM parked_cancellations"
_OUTBOX = "SELECT request_id, revision, status, dead_letter FROM outbox ORDER BY id"


@dataclass(frozen=True, slots=True)
class Event:
    """A result event as it was published."""

    request_id: str
    revision: int
    status: str
    value: bytes


class Judge:
    """Of one site."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._ids: dict[str, int] = {}
        self._statuses: defaultdict[str, dict[int, str]] = defaultdict(dict)
        self._originals: dict[str, str] = {}
        """Of what is another name of an earlier submission."""
        self._over: dict[str, datetime] = {}
        """When that was first seen which nothing can come of any more."""

    def check(self) -> None:
        """Raises `AssertionError` where something does not hold."""
        site = self._site
        found_rows, found_waiting, duplicates, parked = site.store.read(_ROWS, _OUTBOX, _DUPLICATES, _PARKED)
        rows, waiting = ([row._mapping for row in found] for found in (found_rows, found_waiting))
        results = site.log.written[TOPICS.results]
        published = [_event(message) for message in results if is_outcome(message)]
        assert not site.failures, site.failures
        assert not site.ownership.violations, site.ownership.violations
        self._repetitions_stay_what_they_are({row.request_id: row.duplicate_of for row in duplicates}, rows)
        self._repetitions_are_told_truly([message for message in results if is_duplicate(message)])
        self._nothing_was_made_twice()
        self._nothing_disappeared(rows)
        self._what_is_committed_was_taken_in(rows, {row.request_id for row in parked})
        for row in rows:
            self._status_is_true(row)
            self._doubts_are_kept(row)
            _work_goes_on(row)
            self._card_is_kept_only_while_needed(row)
        self._events_are_in_order(rows, waiting, published)

    def check_end(self) -> None:
        """As `check`; and that everything came to its end."""
        self.check()
        site = self._site
        rows, waiting = ([row._mapping for row in found] for found in site.store.read(_ROWS, _OUTBOX))
        taken_in = {row["request_id"] for row in rows} | self._originals.keys()
        assert taken_in == set(site.callers.submitted), "a submission was lost"
        for row in rows:
            assert row["status"] in _ENDED or (row["status"] == "IN_DOUBT" and row["due_at"] is None), (
                f"nothing comes of {dict(row)}"
            )
            assert not _to_be_cancelled(row), f"never cancelled: {dict(row)}"
        assert not waiting, "an event was never published"
        assert site.log.read, "a message was never taken in"
        spoiled = [letter for letter in site.log.written[TOPICS.dead_letters] if letter.value == b"{"]
        assert len(spoiled) >= site.callers.garbage, "what could not be read was lost"

    def at_rest(self) -> bool:
        """Whether nothing is left to be done, but by an operator."""
        site = self._site
        open_rows = "SELECT 1 FROM reservations WHERE due_at IS NOT NULL OR leased_by IS NOT NULL LIMIT 1"
        return site.log.read and not any(site.store.read(open_rows, _OUTBOX))

    # --- never twice --------------------------------------------------------------------------------------------------
    def _nothing_was_made_twice(self) -> None:
        assert not self._site.pmss.pushes.violations, self._site.pmss.pushes.violations
        twice = {reference: ids for reference, ids in self._site.pmss.made.items() if len(ids) > 1}
        assert not twice, f"made twice: {twice}"
        self._what_is_wanted_once_was_made_once()

    def _what_is_wanted_once_was_made_once(self) -> None:
        """However often it was sent, unless its caller cancelled what was made, or sent it with another key."""
        callers, keyed, standing = self._site.callers, Counter[str](), defaultdict[str, list[str]](list)
        cancelled = self._cancelled()
        for request_id, taken in callers.submitted.items():
            assert taken.natural is not None
            keyed[taken.natural.key] += taken.natural.keyed
            if self._site.pmss.made.get(request_id) and request_id not in cancelled:
                standing[taken.natural.key].append(request_id)
        for key, request_ids in standing.items():
            assert len(request_ids) <= max(keyed[key], 1), f"one thing, made as {request_ids}"

    def _cancelled(self) -> set[str]:
        """What was cancelled, under whichever of its names."""
        return {self._originals.get(request_id, request_id) for request_id in self._site.callers.cancelled}

    def _repetitions_stay_what_they_are(self, originals: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> None:
        """A duplicate is never another's, and no row of its own; and nothing is a duplicate of what was over when it was sent."""
        submitted, statuses = self._site.callers.submitted, {row["request_id"]: row["status"] for row in rows}
        assert self._originals.items() <= originals.items(), f"{self._originals} became {originals}"
        for request_id in originals.keys() - self._originals.keys():
            original, sent_at = originals[request_id], submitted[request_id].accepted_at
            assert original in statuses, f"{request_id} is {original}, which is nowhere"
            over = self._over.get(original)
            assert over is None or sent_at <= over, f"{request_id} is lost behind {original}, over since {over}"
        assert not originals.keys() & statuses.keys(), f"a row, and a duplicate: {originals.keys() & statuses.keys()}"
        self._originals = dict(originals)
        keyed = Counter(self._originals.get(each, each) for each, taken in submitted.items() if _has_key(taken))
        apart = [each for each, count in keyed.items() if count > 1]
        assert not apart, f"several keys, and one submission: {apart}"
        now, put_back = self._site.callers.now(), {each.rpartition(".")[0] for each in self._site.operator.replays}
        for request_id, status in statuses.items():
            if status in {"REJECTED", "CANCELLED"} or (status == "FAILED" and request_id not in put_back):
                self._over.setdefault(request_id, now)
            elif request_id in put_back:
                self._over.pop(request_id, None)

    def _repetitions_are_told_truly(self, told: Sequence[Message]) -> None:
        for message in told:
            request_id, original = subject(message.headers), decode_data(message)["duplicateOf"]
            assert self._originals.get(request_id or "") == original, f"{request_id} is not {original}"

    # --- never lost ---------------------------------------------------------------------------------------------------
    def _nothing_disappeared(self, rows: Sequence[Mapping[str, Any]]) -> None:
        ids = {row["request_id"]: row["id"] for row in rows}
        assert self._ids.items() <= ids.items(), "what was taken in is gone"
        self._ids = ids

    def _what_is_committed_was_taken_in(self, rows: Sequence[Mapping[str, Any]], parked: set[str]) -> None:
        log = self._site.log
        to_cancel = parked | {row["request_id"] for row in rows if row["cancel_requested_at"] is not None}
        for partition, offset in enumerate(log.committed):
            for message in log.requests[partition][:offset]:
                request_id = subject(message.headers)
                if is_cancellation(message):
                    taken_in = self._originals.get(request_id or "", request_id) in to_cancel
                else:
                    taken_in = request_id in self._ids or request_id in self._originals
                assert request_id is None or taken_in, f"{request_id} was committed and not taken in"

    # --- what is said is true -----------------------------------------------------------------------------------------
    def _status_is_true(self, row: Mapping[str, Any]) -> None:
        request_id, pmss = row["request_id"], self._site.pmss
        made, coming = pmss.made.get(request_id, []), pmss.under_way[request_id]
        assert row["cancel_requested_at"] is None or request_id in self._cancelled(), "nobody asked for that"
        assert request_id not in pmss.cancelled or row["cancel_requested_at"] is not None, "cancelled, and nobody asked"
        if row["status"] == "CONFIRMED":
            assert made, f"CONFIRMED, and not made: {dict(row)}"
            assert row["pms_reservation_id"] == made[0]
        elif row["status"] == "CANCELLED":
            assert not made or request_id in pmss.cancelled, f"CANCELLED, and there: {dict(row)}"
            assert not coming, f"CANCELLED, and may still be made: {dict(row)}"
        elif row["status"] in _ENDED:
            assert not made, f"{row['status']}, and made: {dict(row)}"
            assert not coming, f"{row['status']}, and may still be made: {dict(row)}"
        reasons = {attempt["reason"] for attempt in from_json(row["attempts"])}
        assert "adapter_failed" not in reasons, "a bug"

    def _doubts_are_kept(self, row: Mapping[str, Any]) -> None:
        """What may have been made is held by somebody, or marked as in doubt, until somebody knows."""
        if self._site.pmss.pushes.unsettled(row["request_id"]):
            known = row["status"] in {"REJECTED", "FAILED", "CANCELLED"}
            assert not known, f"{row['status']}, and nobody knows: {dict(row)}"
            free = row["status"] == "PENDING" and row["leased_by"] is None and not row["possibly_sent"]
            assert not free, f"free, as if surely not sent: {dict(row)}"

    def _card_is_kept_only_while_needed(self, row: Mapping[str, Any]) -> None:
        needed = self._site.callers.submitted[row["request_id"]].card is not None and row["status"] not in _ENDED
        assert (row["card"] is not None) == needed, f"the card: {dict(row)}"
        assert CARD_NUMBER not in str(dict(row)), "a card number can be read"

    # --- results arrive -----------------------------------------------------------------------------------------------
    def _events_are_in_order(
        self, rows: Sequence[Mapping[str, Any]], waiting: Sequence[Mapping[str, Any]], published: Sequence[Event]
    ) -> None:
        first: dict[tuple[str, int], Event] = {}
        for event in published:
            known = first.setdefault((event.request_id, event.revision), event)
            assert known == event, f"one id, two events: {known} {event}"
            before = (event.request_id, event.revision - 1)
            assert event.revision == 1 or before in first, f"published before the one before it: {event}"
            self._note(event.request_id, event.revision, event.status)
        for entry in waiting:
            self._note(entry["request_id"], entry["revision"], entry["status"])
        letters = {header(letter.headers, "dlt-event-id") for letter in self._site.log.written[TOPICS.dead_letters]}
        in_outbox = {(entry["request_id"], entry["revision"]) for entry in waiting}
        for row in rows:
            self._events_tell_all(row, in_outbox, {key for key in first if key[0] == row["request_id"]}, letters)

    def _note(self, request_id: str, revision: int, status: str) -> None:
        known = self._statuses[request_id].setdefault(revision, status)
        assert known == status, f"revision {revision} of {request_id} is {known} and {status}"

    def _events_tell_all(
        self,
        row: Mapping[str, Any],
        in_outbox: set[tuple[str, int]],
        published: set[tuple[str, int]],
        letters: set[str | None],
    ) -> None:
        request_id, last = row["request_id"], row["revision"]
        every = {(request_id, revision) for revision in range(1, last + 1)}
        assert published <= every, f"announced, and not recorded: {published - every}"
        assert every <= published | in_outbox, f"recorded, and forgotten: {every - published - in_outbox}"
        statuses = self._statuses[request_id]
        for revision in range(1, last + 1):
            status, event_id = statuses[revision], f"{request_id}.{revision}"
            following = statuses.get(revision + 1)
            assert following is None or following in _FOLLOWING[status], f"{request_id}: {status} became {following}"
            if status == "FAILED":
                assert (request_id, revision) in in_outbox or event_id in letters, f"no dead letter of {event_id}"
                gone_on = revision < last or row["status"] != status
                assert not gone_on or self._site.operator.replays[event_id], f"{event_id} went on without a replay"
        if row["status"] != "PENDING":
            assert statuses.get(last) == row["status"], f"{row['status']} was not announced: {statuses}"


def _has_key(taken: Submission) -> bool:
    return taken.natural is not None and taken.natural.keyed


def _work_goes_on(row: Mapping[str, Any]) -> None:
    """Whatever has not ended is due, in somebody's hands or not, or an operator's; whatever has ended is neither."""
    if row["status"] == "PENDING" or _to_be_cancelled(row):
        assert row["due_at"] is not None, f"neither done nor to be done: {dict(row)}"
    elif row["status"] in _ENDED:
        assert row["due_at"] is None, f"done and to be done: {dict(row)}"
        assert row["leased_by"] is None, f"done and held: {dict(row)}"


def _to_be_cancelled(row: Mapping[str, Any]) -> bool:
    asked = row["cancel_requested_at"] is not None and row["cancel_problem"] is None
    return row["status"] == "CONFIRMED" and asked


def _event(message: Message) -> Event:
    event_id, kind = header(message.headers, "ce_id") or "", header(message.headers, "ce_type") or ""
    request_id, _, revision = event_id.rpartition(".")
    assert CARD_NUMBER.encode() not in message.value, "a card number can be read"
    status = kind.split(".")[1].upper()
    return Event(request_id, int(revision), _STILL.get(status, status), message.value)
