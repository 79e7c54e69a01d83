"""The store's tables. The statements use them, and a test compares them with the migrations."""

from datetime import date
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Date,
    Double,
    Identity,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    and_,
    case,
    func,
    literal_column,
    text,
)
from sqlalchemy.sql.base import ReadOnlyColumnCollection

from forwarder.reservation.outcome import LISTED_STATUSES, Status
from forwarder.store.sql import Moment, utc_day

Key = Text().with_variant(Text(collation="C"), "postgresql")
"""An identifier: compared byte by byte, which is what indexes on it are fastest with."""

RowId = BigInteger().with_variant(Integer(), "sqlite")

metadata = MetaData()

reservations = Table(
    "reservations",
    metadata,
    Column("id", RowId, Identity(always=True), primary_key=True),
    Column("request_id", Key, nullable=False),
    Column("record_id", BigInteger, nullable=False),
    Column("workspace_id", Text, nullable=False),
    Column("account_id", Key, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("log_offset", BigInteger, nullable=False, server_default=text("0")),
    Column("log_timestamp_ms", BigInteger, nullable=False, server_default=text("0")),
    Column("operation", Text, nullable=False),
    Column("property_id", Text, nullable=False),
    Column("room_id", Text, nullable=False),
    Column("arrival_date", Date, nullable=False),
    Column("departure_date", Date, nullable=False),
    Column("status", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("card", Text),
    Column("accepted_at", Moment, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    Column("cancelled_at", Moment),
    Column("deadline_at", Moment, nullable=False),
    Column("due_at", Moment),
    Column("leased_by", Key),
    Column("pushing", Boolean, nullable=False, server_default=text("false")),
    Column("possibly_sent", Boolean, nullable=False, server_default=text("false")),
    Column("target", Text),
    Column("evidence", Text),
    Column("doubles", Text),
    Column("takeovers", Integer, nullable=False, server_default=text("0")),
    Column("attempts", Text, nullable=False, server_default=text("'[]'")),
    Column("tries", Integer, nullable=False, server_default=text("0")),
    Column("revision", Integer, nullable=False, server_default=text("0")),
    Column("pms_reservation_id", Text),
    Column("record", Text),
    Column("problem", Text),
    Column("trace", Text),
    Column("cancel_requested_at", Moment),
    Column("cancel_reason", Text),
    Column("cancel_problem", Text),
    Column("natural_key", Key),
    Column("transaction_key", Key),
    Column("keyed", Boolean, nullable=False, server_default=text("false")),
    Column("transaction_of", Text),
    Column("anonymized_at", Moment),
    Column("failure_class", Text),
    Column("same_key", Key),
    Column("stay_key", Key),
    Column("similar_to", Text),
    Column("conflicting_at", Moment),
    sqlite_autoincrement=True,
    # A row is written twice, once when it is taken in and once with its outcome. Rows of the usual size stay in the page, as
    # they are: compressing each on its way costs more than it saves.
    postgresql_with={"toast_tuple_target": 8160, "autovacuum_vacuum_scale_factor": 0.05},
)
"""One row per submission. `status` is a value of `Status`. `request`, `card`, `attempts`, `record`, `problem` and `cancel_problem`
are JSON texts.

- `id`: counts, in the order in which rows were ingested; lists, their cursors and the other tables go by it.
- `record_id`: what callers know as the `id` of the record, derived from the request id.
- `partition`, `log_offset`, `log_timestamp_ms` (UTC, since 1970): where and when the requests topic had it. An offset below
  0 is of a topic that was lost since.
- `card`: the card, sealed under keys that are in `card_keys`; null once the outcome is final.
- `due_at`: when the row is to be worked on, or since when; null once nothing is left to do, or only for an operator.
- `deadline_at`: until when that is tried.
- `leased_by`: the worker that holds it.
- `pushing`: an intent to push was made durable, and its end is not known.
- `possibly_sent`: an earlier push may have made a reservation.
- `evidence`: what was sent, to whom, and what came back (`reservation.evidence`), one JSON object a line.
- `target`: where pushes go under the present lease, or the last, and what they carry (see `Work`).
- `doubles`: the ids of other reservations that the PMS shows under the same reference, as JSON.
- `takeovers`: how many workers it was taken over from.
- `tries`: how many since it became pending, or its cancellation could first be tried; `attempts` need not hold all of them.
- `cancel_problem`: why a requested cancellation failed.
- `natural_key`, `transaction_key`, `keyed`: as in `NaturalKey`; `keyed` also of one that a keyed submission repeated.
- `same_key`, `stay_key`: as in `NaturalKey`; NULL in rows of releases before 0.2.
- `similar_to`: the request ids of others for the same stay and guest, as a JSON text; NULL where there are none.
- `conflicting_at`: when the last submission with another body under its idempotency key was accepted, which was not made.
- `transaction_of`: no longer written. Releases before 0.2 refused a submission for the transaction of the one that it names.
- `failure_class`: the class of its dead letter, where it is FAILED.
- `anonymized_at`: when its guest's data was removed (`reservation.anonymous`); null again once it is worked on again.
"""

Index("reservations_request_id", reservations.c.request_id, unique=True)
Index("reservations_record_id", reservations.c.record_id, unique=True)
_UNLISTED: list[ColumnElement[str]] = [
    literal_column(f"'{status}'") for status in sorted(set(Status) - LISTED_STATUSES)
]
IS_LISTED: Final = reservations.c.status.not_in(_UNLISTED)
"""What a list has by default, as a condition. A partial index serves only statements that have the very same one."""
Index(
    "reservations_listed",
    reservations.c.account_id,
    reservations.c.id,
    postgresql_where=IS_LISTED,
    sqlite_where=IS_LISTED,
)
# One for each filter of a list. An account's rows with one key lie in the order of their ids, in which lists are read.
Index("reservations_status", reservations.c.account_id, reservations.c.status, reservations.c.id)
Index("reservations_property", reservations.c.account_id, reservations.c.property_id, reservations.c.id)
Index("reservations_arrival", reservations.c.account_id, reservations.c.arrival_date, reservations.c.id)
Index("reservations_departure", reservations.c.account_id, reservations.c.departure_date, reservations.c.id)
# By the day, because there are few of them. The moment is last in the index, so that older rows are passed over unread.
Index(
    "reservations_updated",
    reservations.c.account_id,
    utc_day(reservations.c.updated_at),
    reservations.c.id,
    reservations.c.updated_at,
)
# What can be claimed, in the order in which it is claimed. The partition is last in the index, not beside it, so that rows of
# other workers' partitions are passed over without being read.
Index(
    "reservations_due",
    reservations.c.account_id,
    reservations.c.due_at,
    reservations.c.id,
    reservations.c.partition,
    postgresql_where=text("due_at IS NOT NULL AND leased_by IS NULL"),
    sqlite_where=text("due_at IS NOT NULL AND leased_by IS NULL"),
)
# For operators, who are asked about what a PMS shows.
Index(
    "reservations_pms_id",
    reservations.c.pms_reservation_id,
    reservations.c.id,
    postgresql_where=text("pms_reservation_id IS NOT NULL"),
    sqlite_where=text("pms_reservation_id IS NOT NULL"),
)
Index(
    "reservations_doubles",
    reservations.c.id,
    postgresql_where=text("doubles IS NOT NULL"),
    sqlite_where=text("doubles IS NOT NULL"),
)
Index(
    "reservations_deadline",
    reservations.c.deadline_at,
    reservations.c.id,
    reservations.c.partition,
    postgresql_where=text("status <> 'IN_DOUBT' AND due_at IS NOT NULL AND leased_by IS NULL"),
    sqlite_where=text("status <> 'IN_DOUBT' AND due_at IS NOT NULL AND leased_by IS NULL"),
)
Index(
    "reservations_leased",
    reservations.c.leased_by,
    postgresql_where=text("leased_by IS NOT NULL"),
    sqlite_where=text("leased_by IS NOT NULL"),
)

_departed_later = and_(
    reservations.c.status == literal_column("'CONFIRMED'"),
    reservations.c.departure_date > utc_day(reservations.c.updated_at),
)
FINISHED_DAY: Final[ColumnElement[date]] = func.coalesce(
    case((_departed_later, reservations.c.departure_date)), utc_day(reservations.c.updated_at)
)
"""The day on which a submission was finished: the guest leaves, or, where that is over or will not be, the outcome was recorded."""
_IDENTIFIABLE = "anonymized_at IS NULL AND due_at IS NULL AND leased_by IS NULL AND status <> 'IN_DOUBT'"
IS_IDENTIFIABLE: Final = text(_IDENTIFIABLE)
"""That nothing is left to do for a row, and its guest's data is still there; literally the condition of the index."""
Index(
    "reservations_identifiable",
    reservations.c.workspace_id,
    reservations.c.status,
    FINISHED_DAY,
    reservations.c.id,
    postgresql_where=text(_IDENTIFIABLE),
    sqlite_where=text(_IDENTIFIABLE),
)

_OPEN_FAILURE = "status = 'FAILED' AND anonymized_at IS NULL"
IS_OPEN_FAILURE: Final = text(_OPEN_FAILURE)
"""That a submission failed and could be put back; literally the condition of the index."""
Index(
    "reservations_failed",
    reservations.c.account_id,
    reservations.c.failure_class,
    postgresql_where=text(_OPEN_FAILURE),
    sqlite_where=text(_OPEN_FAILURE),
)

_POSSIBLE = "status IN ('PENDING', 'IN_DOUBT', 'CONFIRMED', 'CANCELLED')"
"""Of which rows a reservation came or may come. Only those are looked for by what they ask for."""


def recognised_by(columns: ReadOnlyColumnCollection[str, Any]) -> ColumnElement[str]:
    """What a submission that is sent again is looked for by: its transaction, or its natural key where it has none, which two that
    have different transactions never share."""
    return func.coalesce(columns.transaction_key, columns.natural_key)


Index(
    "reservations_recognised",
    recognised_by(reservations.c),
    reservations.c.id,
    postgresql_where=text(f"natural_key IS NOT NULL AND {_POSSIBLE}"),
    sqlite_where=text(f"natural_key IS NOT NULL AND {_POSSIBLE}"),
)

_IS_RECOGNISED = f"stay_key IS NOT NULL AND {_POSSIBLE}"
# By both: what is the same is found at once, however many have the stay.
Index(
    "reservations_stay",
    reservations.c.stay_key,
    reservations.c.same_key,
    reservations.c.id,
    postgresql_where=text(_IS_RECOGNISED),
    sqlite_where=text(_IS_RECOGNISED),
)

card_keys = Table(
    "card_keys",
    metadata,
    Column("request_id", Key, primary_key=True),
    Column("secret_id", Text, nullable=False),
    Column("number_key", Text, nullable=False),
    Column("code_key", Text),
    Column("expires_at", Moment, nullable=False),
    Column("sealing_key", Key),
)
"""The keys of the cards in rows that are under way, wrapped by the secret; `code_key` is the security code's. A card whose key is
deleted cannot be opened by anybody: so this table does not belong into a backup. `sealing_key`: in place of keys of its own, the
one in `sealing_keys` that a card is sealed to whose worker lacked the secret for it; that one is kept until then."""

duplicates = Table(
    "duplicates",
    metadata,
    Column("request_id", Key, primary_key=True),
    Column("account_id", Key, nullable=False),
    Column("duplicate_of", Key, nullable=False),
    Column("accepted_at", Moment, nullable=False),
    Column("fingerprint", Text, nullable=False),
)
"""Submissions that turned out to be an earlier one sent again: `duplicate_of` is the request id of that one, which has a row. And,
as a duplicate of itself, each confirmed one whose row was purged."""

purges = Table(
    "purges",
    metadata,
    Column("finished_before", Date, primary_key=True),
    Column("purged_at", Moment, nullable=False),
)
"""The days before which rows of finished submissions were deleted: that the store lacks those is no sign of a restore."""

recoveries = Table(
    "recoveries",
    metadata,
    Column("began_at", Moment, primary_key=True),
    Column("since", Moment),
    Column("recovered_at", Moment),
)
"""The runs of `forwarder recover`. `since`: from when on topics are read, null for all that they have. `recovered_at`: when it was
done; what workers remember of before proves no loss any more. Null of one that was broken off: workers wait until it is
run again."""

log_gaps = Table(
    "log_gaps",
    metadata,
    Column("topic", Key, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("resumed_at", BigInteger, nullable=False),
    Column("noted_at", Moment, nullable=False),
)
"""Messages that a topic lost before its consumer group received them, as in `LogGap`, until an operator accepts that."""

parked_cancellations = Table(
    "parked_cancellations",
    metadata,
    Column("request_id", Key, primary_key=True),
    Column("account_id", Key, nullable=False),
    Column("requested_at", Moment, nullable=False),
    Column("reason", Text),
    Column("trace", Text),
)
"""Cancellations that arrived before their submission."""

workers = Table(
    "workers",
    metadata,
    Column("id", Key, primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("lease_seconds", Double, nullable=False),
    postgresql_with={"fillfactor": 50},
)
"""The lease holders. `sequence` counts renewals: a worker whose sequence stands still for `lease_seconds`, by the clock of whoever
watches, has lost its lease. A worker that is not in here will soon hold nothing."""

processes = Table(
    "processes",
    metadata,
    Column("id", Key, primary_key=True),
    Column("role", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("revision", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("started_at", Moment, nullable=False),
    Column("seen_at", Moment, nullable=False),
    Column("throttles", Text, nullable=False),
    postgresql_with={"fillfactor": 50},
)
"""The processes that run, as in `RunningProcess`; `throttles` is JSON. Told every few seconds, for operators alone."""

outbox = Table(
    "outbox",
    metadata,
    Column("id", RowId, Identity(always=True), primary_key=True),
    Column("reservation_id", BigInteger, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("status", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("occurred_at", Text, nullable=False),
    Column("data", Text, nullable=False),
    Column("trace", Text),
    Column("dead_letter", Text),
    Column("publish_attempted_at", Moment, nullable=False),
    Column("faults", Integer, nullable=False, server_default=text("0")),
    Column("error_id", Text),
    sqlite_autoincrement=True,
    # Rows live for milliseconds: what matters is that their places are used again soon.
    postgresql_with={
        "toast_tuple_target": 8160,
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 5000,
    },
)
"""Events that were recorded with their outcome and are not known to be published. `dead_letter` (JSON) goes out with the event.
`publish_attempted_at`: when it was last handed out to be published; at first, when it was recorded. `faults`: how often it could
not be published for a reason that nobody expected, last the one that the log has under `error_id`."""

_SET_ASIDE = "faults > 0"
IS_SET_ASIDE: Final = text(_SET_ASIDE)
"""That an event could not be published; literally the condition of the index."""
Index("outbox_set_aside", outbox.c.id, postgresql_where=text(_SET_ASIDE), sqlite_where=text(_SET_ASIDE))

suspects = Table(
    "suspects",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("worker_id", Key, nullable=False),
    Column("deaths", Integer, nullable=False, server_default=text("0")),
)
"""Rows that were taken over again and again, while a worker pushes them: `id` is the row's, `deaths` how many workers ended over it
before this one."""

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("id", RowId, Identity(always=True), primary_key=True),
    Column("endpoint_id", Key, nullable=False),
    Column("event_id", Key, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("trace", Text),
    Column("status", Text, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("retrying_since", Moment, nullable=False),
    Column("due_at", Moment),
    Column("ended_at", Moment),
    Column("claims", Integer, nullable=False, server_default=text("0")),
    Column("tries", Integer, nullable=False, server_default=text("0")),
    Column("attempts", Text, nullable=False, server_default=text("'[]'")),
    sqlite_autoincrement=True,
)
"""Deliveries to customers' endpoints, and how they ended. `due_at` is set while one is pending; a claim postpones it, so that a
delivery whose claimant dies is due again. `retrying_since`: the first try of this series; before that, when it was queued.
`claims` counts claims, to tell one from another."""

Index(
    "webhook_deliveries_event",
    webhook_deliveries.c.endpoint_id,
    webhook_deliveries.c.event_id,
    unique=True,
)
Index(
    "webhook_deliveries_due",
    webhook_deliveries.c.endpoint_id,
    webhook_deliveries.c.due_at,
    postgresql_where=text("due_at IS NOT NULL"),
    sqlite_where=text("due_at IS NOT NULL"),
)
Index("webhook_deliveries_endpoint", webhook_deliveries.c.endpoint_id, webhook_deliveries.c.id)

audit = Table(
    "audit",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Moment, nullable=False),
    Column("actor_kind", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("workspace_id", Text),
    Column("target", Text),
    Column("result", Text, nullable=False),
    Column("reason", Text),
    Column("details", Text, nullable=False),
    Column("previous_hash", Text, nullable=False),
    Column("hash", Text, nullable=False),
)
"""The audit trail, as in `AuditEntry`. Triggers refuse to change or delete what is in it."""

audit_head = Table(
    "audit_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    Column("hash", Text, nullable=False),
)
"""The end of the audit trail, in one row, which whoever appends to it has locked."""
