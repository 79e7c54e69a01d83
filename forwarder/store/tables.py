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
    # A row is written twice: when it is ingested, and with its outcome. Rows of the usual size stay uncompressed in the page,
    # because compressing each costs more than it saves.
    postgresql_with={"toast_tuple_target": 8160, "autovacuum_vacuum_scale_factor": 0.05},
)
"""One row per submission. `status` is a value of `Status`. `request`, `card`, `attempts`, `record`, `problem` and `cancel_problem`
are JSON texts.

- `id`: increases in the order of ingestion; lists, their cursors and the other tables use it.
- `record_id`: the record's `id` that callers see, derived from the request id.
- `partition`, `log_offset`, `log_timestamp_ms` (UTC, since 1970): of its message on the requests topic. A negative offset is of a
  topic that was lost since.
- `card`: the card, sealed under keys that are in `card_keys`; null once the outcome is final.
- `due_at`: when the row is (or was) due; null once nothing is left to do, or only an operator can.
- `deadline_at`: until when the forwarder tries it.
- `leased_by`: the worker that holds it.
- `pushing`: an intent to push was made durable, and its end is not known.
- `possibly_sent`: an earlier push may have made a reservation.
- `evidence`: the pushes and their results (`reservation.evidence`), one JSON object a line.
- `target`: the target of pushes under the current or last lease (see `Work`).
- `doubles`: the ids of other reservations that the PMS shows under the same reference, as JSON.
- `takeovers`: how many workers it was taken over from.
- `tries`: attempts since it became pending, or its cancellation could first be tried; `attempts` may not hold all of them.
- `cancel_problem`: why a requested cancellation failed.
- `natural_key`, `transaction_key`, `keyed`: as in `NaturalKey`; `keyed` also if a keyed submission repeated it.
- `same_key`, `stay_key`: as in `NaturalKey`; NULL in rows of releases before 0.2.
- `similar_to`: the request ids of others for the same stay and guest, as a JSON text; NULL if there are none.
- `conflicting_at`: when the last submission with another body under its idempotency key was accepted, which was not made.
- `transaction_of`: no longer written. Releases before 0.2 refused a submission that reused the transaction of the named one.
- `failure_class`: the class of its dead letter, if FAILED.
- `anonymized_at`: when its guest's data was removed (`reservation.anonymous`); null again once work on it resumes.
"""

Index("reservations_request_id", reservations.c.request_id, unique=True)
Index("reservations_record_id", reservations.c.record_id, unique=True)
_UNLISTED: list[ColumnElement[str]] = [
    literal_column(f"'{status}'") for status in sorted(set(Status) - LISTED_STATUSES)
]
IS_LISTED: Final = reservations.c.status.not_in(_UNLISTED)
"""The default filter of a list. A partial index serves only statements with exactly its condition."""
Index(
    "reservations_listed",
    reservations.c.account_id,
    reservations.c.id,
    postgresql_where=IS_LISTED,
    sqlite_where=IS_LISTED,
)
# One for each filter of a list, with ids last, because lists are read in the order of ids.
Index("reservations_status", reservations.c.account_id, reservations.c.status, reservations.c.id)
Index("reservations_property", reservations.c.account_id, reservations.c.property_id, reservations.c.id)
Index("reservations_arrival", reservations.c.account_id, reservations.c.arrival_date, reservations.c.id)
Index("reservations_departure", reservations.c.account_id, reservations.c.departure_date, reservations.c.id)
# By day, because there are few days. The moment is last in the index, so that older rows are skipped unread.
Index(
    "reservations_updated",
    reservations.c.account_id,
    utc_day(reservations.c.updated_at),
    reservations.c.id,
    reservations.c.updated_at,
)
# Claimable rows, in the order of claims. The partition is the last column of the index, so that rows of other workers' partitions
# are skipped unread.
Index(
    "reservations_due",
    reservations.c.account_id,
    reservations.c.due_at,
    reservations.c.id,
    reservations.c.partition,
    postgresql_where=text("due_at IS NOT NULL AND leased_by IS NULL"),
    sqlite_where=text("due_at IS NOT NULL AND leased_by IS NULL"),
)
# For operators, who look up reservations by the PMS's id.
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
"""The day on which a submission is finished: of the guest's departure if confirmed and later, else of its outcome."""
_IDENTIFIABLE = "anonymized_at IS NULL AND due_at IS NULL AND leased_by IS NULL AND status <> 'IN_DOUBT'"
IS_IDENTIFIABLE: Final = text(_IDENTIFIABLE)
"""Finished rows that still have their guest's data; literally the condition of the index."""
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
"""Failed submissions that can be replayed; literally the condition of the index."""
Index(
    "reservations_failed",
    reservations.c.account_id,
    reservations.c.failure_class,
    postgresql_where=text(_OPEN_FAILURE),
    sqlite_where=text(_OPEN_FAILURE),
)

_POSSIBLE = "status IN ('PENDING', 'IN_DOUBT', 'CONFIRMED', 'CANCELLED')"
"""Rows that led or may lead to a reservation. Only these are searched for repeats."""


def recognised_by(columns: ReadOnlyColumnCollection[str, Any]) -> ColumnElement[str]:
    """The key that repeats are searched by: the transaction, or the natural key if there is none. Submissions with different
    transactions never share it."""
    return func.coalesce(columns.transaction_key, columns.natural_key)


Index(
    "reservations_recognised",
    recognised_by(reservations.c),
    reservations.c.id,
    postgresql_where=text(f"natural_key IS NOT NULL AND {_POSSIBLE}"),
    sqlite_where=text(f"natural_key IS NOT NULL AND {_POSSIBLE}"),
)

_IS_RECOGNISED = f"stay_key IS NOT NULL AND {_POSSIBLE}"
# By both, so that the same content is found at once, regardless of how many have the same stay.
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
"""The keys of the cards in open rows, wrapped by the secret; `code_key` is the security code's. A card whose key is deleted can no
longer be opened; so exclude this table from backups. `sealing_key`: the key in `sealing_keys` that the card is still sealed to,
because the worker that ingested it lacked the secret; that key is kept until the card is resealed."""

duplicates = Table(
    "duplicates",
    metadata,
    Column("request_id", Key, primary_key=True),
    Column("account_id", Key, nullable=False),
    Column("duplicate_of", Key, nullable=False),
    Column("accepted_at", Moment, nullable=False),
    Column("fingerprint", Text, nullable=False),
)
"""Submissions that repeated an earlier one: `duplicate_of` is the request id of that one, which has a row. Each confirmed
submission whose row was purged is recorded as a duplicate of itself."""

purges = Table(
    "purges",
    metadata,
    Column("finished_before", Date, primary_key=True),
    Column("purged_at", Moment, nullable=False),
)
"""The days before which rows of finished submissions were purged, so that their absence is not taken for a restore."""

recoveries = Table(
    "recoveries",
    metadata,
    Column("began_at", Moment, primary_key=True),
    Column("since", Moment),
    Column("recovered_at", Moment),
)
"""The runs of `forwarder recover`. `since`: the time from which topics are read, null for all messages. `recovered_at`: when it
finished; acknowledgements from before no longer prove a loss. Null if it was interrupted: workers wait until it is run again."""

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
"""The lease holders. `sequence` counts renewals: a worker whose sequence does not change for `lease_seconds`, by the clock of the
worker that watches, has lost its lease. The rows of a worker that is not in this table will soon be freed."""

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
"""The running processes, as in `RunningProcess`; `throttles` is JSON. Updated every few seconds, only for operators."""

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
    # Rows live for milliseconds, so their space must be reused soon.
    postgresql_with={
        "toast_tuple_target": 8160,
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 5000,
    },
)
"""Events that were recorded with their outcome and are not known to be published. `dead_letter` (JSON) is published with the event.
`publish_attempted_at`: when it was last handed out to be published; at first, when it was recorded. `faults`: how often publishing
failed with an unexpected exception; the last one is logged with `error_id`."""

_SET_ASIDE = "faults > 0"
IS_SET_ASIDE: Final = text(_SET_ASIDE)
"""Events that could not be published; literally the condition of the index."""
Index("outbox_set_aside", outbox.c.id, postgresql_where=text(_SET_ASIDE), sqlite_where=text(_SET_ASIDE))

suspects = Table(
    "suspects",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("worker_id", Key, nullable=False),
    Column("deaths", Integer, nullable=False, server_default=text("0")),
)
"""Rows that were taken over repeatedly, while a worker pushes them: `id` is the row's, `deaths` how many workers died while they
pushed it, before this one."""

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
"""Deliveries to customers' endpoints, and their results. `due_at` is set while one is pending; a claim postpones it, so that a
delivery whose claimant dies is due again. `retrying_since`: the first attempt of this series; before that, when it was queued.
`claims` numbers the claims, to distinguish them."""

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
    # Written by versions that chained the entries. A later migration drops them, once no such process can run any more.
    Column("previous_hash", Text, nullable=False, default=""),
    Column("hash", Text, nullable=False, default=""),
)
"""The audit trail, as in `AuditEntry`. Triggers reject changes and deletions."""

audit_head = Table(
    "audit_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    Column("hash", Text, nullable=False, default=""),  # as in `audit`
)
"""The number of the last entry, in one row, which an append locks."""
