"""The store's tables. The statements use them, and a test compares them with the migrations."""

from collections.abc import Sequence
from datetime import date
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.sql.base import ReadOnlyColumnCollection

from forwarder.reservation.outcome import LISTED_STATUSES, Status
from forwarder.store.sql import Moment, utc_day

Key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
"""An identifier: compared byte by byte, which is what indexes on it are fastest with."""

RowId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
metadata = sa.MetaData()


def _partial_index(name: str, *columns: sa.ColumnElement[Any], where: sa.ColumnElement[bool] | sa.TextClause) -> None:
    """An index of the rows for which `where` is true; it serves only statements with exactly that condition."""
    sa.Index(name, *columns, postgresql_where=where, sqlite_where=where)


reservations = sa.Table(
    "reservations",
    metadata,
    sa.Column("id", RowId, sa.Identity(always=True), primary_key=True),
    sa.Column("request_id", Key, nullable=False),
    sa.Column("record_id", sa.BigInteger, nullable=False),
    sa.Column("workspace_id", sa.Text, nullable=False),
    sa.Column("account_id", Key, nullable=False),
    sa.Column("partition", sa.Integer, nullable=False),
    sa.Column("log_offset", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("log_timestamp_ms", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("operation", sa.Text, nullable=False),
    sa.Column("property_id", sa.Text, nullable=False),
    sa.Column("room_id", sa.Text, nullable=False),
    sa.Column("arrival_date", sa.Date, nullable=False),
    sa.Column("departure_date", sa.Date, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("request", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
    sa.Column("card", sa.Text),
    sa.Column("accepted_at", Moment, nullable=False),
    sa.Column("created_at", Moment, nullable=False),
    sa.Column("updated_at", Moment, nullable=False),
    sa.Column("cancelled_at", Moment),
    sa.Column("deadline_at", Moment, nullable=False),
    sa.Column("due_at", Moment),
    sa.Column("leased_by", Key),
    sa.Column("pushing", sa.Boolean, nullable=False, server_default=sa.text("false")),
    sa.Column("possibly_sent", sa.Boolean, nullable=False, server_default=sa.text("false")),
    sa.Column("target", sa.Text),
    sa.Column("evidence", sa.Text),
    sa.Column("doubles", sa.Text),
    sa.Column("takeovers", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("attempts", sa.Text, nullable=False, server_default=sa.text("'[]'")),
    sa.Column("tries", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("revision", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("pms_reservation_id", sa.Text),
    sa.Column("record", sa.Text),
    sa.Column("problem", sa.Text),
    sa.Column("trace", sa.Text),
    sa.Column("api_key_id", sa.Text),
    sa.Column("cancel_requested_at", Moment),
    sa.Column("cancel_reason", sa.Text),
    sa.Column("cancel_problem", sa.Text),
    sa.Column("natural_key", Key),
    sa.Column("transaction_key", Key),
    sa.Column("keyed", sa.Boolean, nullable=False, server_default=sa.text("false")),
    sa.Column("transaction_of", sa.Text),
    sa.Column("anonymized_at", Moment),
    sa.Column("failure_class", sa.Text),
    sa.Column("same_key", Key),
    sa.Column("stay_key", Key),
    sa.Column("similar_to", sa.Text),
    sa.Column("conflicting_at", Moment),
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

_row = reservations.c
sa.Index("reservations_request_id", _row.request_id, unique=True)
sa.Index("reservations_record_id", _row.record_id, unique=True)
_UNLISTED: list[sa.ColumnElement[str]] = [
    sa.literal_column(f"'{status}'") for status in sorted(set(Status) - LISTED_STATUSES)
]
IS_LISTED: Final = _row.status.not_in(_UNLISTED)
"""The default filter of a list. A partial index serves only statements with exactly its condition."""
_partial_index("reservations_listed", _row.account_id, _row.id, where=IS_LISTED)
# One for each filter of a list, with ids last, because lists are read in the order of ids.
sa.Index("reservations_status", _row.account_id, _row.status, _row.id)
sa.Index("reservations_property", _row.account_id, _row.property_id, _row.id)
sa.Index("reservations_arrival", _row.account_id, _row.arrival_date, _row.id)
sa.Index("reservations_departure", _row.account_id, _row.departure_date, _row.id)
# By day, because there are few days. The moment is last in the index, so that older rows are skipped unread.
sa.Index("reservations_updated", _row.account_id, utc_day(_row.updated_at), _row.id, _row.updated_at)
# Claimable rows, in the order of claims. The partition is the last column of the index, so that rows of other workers' partitions
# are skipped unread.
_partial_index(
    "reservations_due",
    _row.account_id,
    _row.due_at,
    _row.id,
    _row.partition,
    where=sa.text("due_at IS NOT NULL AND leased_by IS NULL"),
)
# For operators, who look up reservations by the PMS's id.
_partial_index("reservations_pms_id", _row.pms_reservation_id, _row.id, where=sa.text("pms_reservation_id IS NOT NULL"))
_partial_index("reservations_doubles", _row.id, where=sa.text("doubles IS NOT NULL"))
_partial_index(
    "reservations_deadline",
    _row.deadline_at,
    _row.id,
    _row.partition,
    where=sa.text("status <> 'IN_DOUBT' AND due_at IS NOT NULL AND leased_by IS NULL"),
)
_partial_index("reservations_leased", _row.leased_by, where=sa.text("leased_by IS NOT NULL"))

_departed_later = sa.and_(
    _row.status == sa.literal_column("'CONFIRMED'"),
    _row.departure_date > utc_day(_row.updated_at),
)
FINISHED_DAY: Final[sa.ColumnElement[date]] = sa.func.coalesce(
    sa.case((_departed_later, _row.departure_date)), utc_day(_row.updated_at)
)
"""The day on which a submission is finished: of the guest's departure if confirmed and later, else of its outcome."""
_IDENTIFIABLE = "anonymized_at IS NULL AND due_at IS NULL AND leased_by IS NULL AND status <> 'IN_DOUBT'"
IS_IDENTIFIABLE: Final = sa.text(_IDENTIFIABLE)
"""Finished rows that still have their guest's data; literally the condition of the index."""
_partial_index(
    "reservations_identifiable", _row.workspace_id, _row.status, FINISHED_DAY, _row.id, where=sa.text(_IDENTIFIABLE)
)

_OPEN_FAILURE = "status = 'FAILED' AND anonymized_at IS NULL"
IS_OPEN_FAILURE: Final = sa.text(_OPEN_FAILURE)
"""Failed submissions that can be replayed; literally the condition of the index."""
_partial_index("reservations_failed", _row.account_id, _row.failure_class, where=sa.text(_OPEN_FAILURE))

POSSIBLE_STATUSES: Final[Sequence[sa.ColumnElement[str]]] = [
    sa.literal_column(f"'{status}'") for status in (Status.PENDING, Status.IN_DOUBT, Status.CONFIRMED, Status.CANCELLED)
]
"""Of rows that led or may lead to a reservation: only these are searched for repeats. In the order of the indexes' conditions,
because SQLite uses a partial index only for a statement with the same list in the same order."""
_POSSIBLE = f"status IN ({', '.join(map(str, POSSIBLE_STATUSES))})"


def recognised_by(columns: ReadOnlyColumnCollection[str, Any]) -> sa.ColumnElement[str]:
    """The key that repeats are searched by: the transaction, or the natural key if there is none. Submissions with different
    transactions never share it."""
    return sa.func.coalesce(columns.transaction_key, columns.natural_key)


_partial_index(
    "reservations_recognised", recognised_by(_row), _row.id, where=sa.text(f"natural_key IS NOT NULL AND {_POSSIBLE}")
)

_IS_RECOGNISED = f"stay_key IS NOT NULL AND {_POSSIBLE}"
# By both, so that the same content is found at once, regardless of how many have the same stay.
_partial_index("reservations_stay", _row.stay_key, _row.same_key, _row.id, where=sa.text(_IS_RECOGNISED))

card_keys = sa.Table(
    "card_keys",
    metadata,
    sa.Column("request_id", Key, primary_key=True),
    sa.Column("secret_id", sa.Text, nullable=False),
    sa.Column("number_key", sa.Text, nullable=False),
    sa.Column("code_key", sa.Text),
    sa.Column("expires_at", Moment, nullable=False),
    sa.Column("sealing_key", Key),
)
"""The keys of the cards in open rows, wrapped by the secret; `code_key` is the security code's. A card whose key is deleted can no
longer be opened; so exclude this table from backups. `sealing_key`: the key in `sealing_keys` that the card is still sealed to,
because the worker that ingested it lacked the secret; that key is kept until the card is resealed."""

duplicates = sa.Table(
    "duplicates",
    metadata,
    sa.Column("request_id", Key, primary_key=True),
    sa.Column("account_id", Key, nullable=False),
    sa.Column("duplicate_of", Key, nullable=False),
    sa.Column("accepted_at", Moment, nullable=False),
    sa.Column("fingerprint", sa.Text, nullable=False),
)
"""Submissions that repeated an earlier one: `duplicate_of` is the request id of that one, which has a row. Each confirmed
submission whose row was purged is recorded as a duplicate of itself."""

purges = sa.Table(
    "purges",
    metadata,
    sa.Column("finished_before", sa.Date, primary_key=True),
    sa.Column("purged_at", Moment, nullable=False),
)
"""The days before which rows of finished submissions were purged, so that their absence is not taken for a restore."""

recoveries = sa.Table(
    "recoveries",
    metadata,
    sa.Column("began_at", Moment, primary_key=True),
    sa.Column("since", Moment),
    sa.Column("recovered_at", Moment),
)
"""The runs of `forwarder recover`. `since`: the time from which topics are read, null for all messages. `recovered_at`: when it
finished; acknowledgements from before no longer prove a loss. Null if it was interrupted: workers wait until it is run again."""

log_gaps = sa.Table(
    "log_gaps",
    metadata,
    sa.Column("topic", Key, primary_key=True),
    sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("resumed_at", sa.BigInteger, nullable=False),
    sa.Column("noted_at", Moment, nullable=False),
)
"""Messages that a topic lost before its consumer group received them, as in `LogGap`, until an operator accepts that."""

parked_cancellations = sa.Table(
    "parked_cancellations",
    metadata,
    sa.Column("request_id", Key, primary_key=True),
    sa.Column("account_id", Key, nullable=False),
    sa.Column("requested_at", Moment, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("trace", sa.Text),
)
"""Cancellations that arrived before their submission."""

workers = sa.Table(
    "workers",
    metadata,
    sa.Column("id", Key, primary_key=True),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("lease_seconds", sa.Double, nullable=False),
    sa.Column("checked", sa.Text),
    postgresql_with={"fillfactor": 50},
)
"""The lease holders. `sequence` counts renewals: a worker whose sequence does not change for `lease_seconds`, by the clock of the
worker that watches, has lost its lease. The rows of a worker that is not in this table will soon be freed."""

processes = sa.Table(
    "processes",
    metadata,
    sa.Column("id", Key, primary_key=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("revision", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("started_at", Moment, nullable=False),
    sa.Column("seen_at", Moment, nullable=False),
    sa.Column("throttles", sa.Text, nullable=False),
    sa.Column("failing", sa.Text, nullable=False, server_default="[]"),
    postgresql_with={"fillfactor": 50},
)
"""The running processes, as in `RunningProcess`; `throttles` and `failing` are JSON. Updated every few seconds, for operators."""

set_aside = sa.Table(
    "set_aside",
    metadata,
    sa.Column("failure_class", Key, primary_key=True),
    sa.Column("messages", sa.BigInteger, nullable=False),
    sa.Column("first_at", Moment, nullable=False),
    sa.Column("last_at", Moment, nullable=False),
)
"""How many messages of the requests topic workers set aside as dead letters, by class, since an operator last acknowledged them."""

outbox = sa.Table(
    "outbox",
    metadata,
    sa.Column("id", RowId, sa.Identity(always=True), primary_key=True),
    sa.Column("reservation_id", sa.BigInteger, nullable=False),
    sa.Column("request_id", sa.Text, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("occurred_at", sa.Text, nullable=False),
    sa.Column("data", sa.Text, nullable=False),
    sa.Column("trace", sa.Text),
    sa.Column("dead_letter", sa.Text),
    sa.Column("publish_attempted_at", Moment, nullable=False),
    sa.Column("faults", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("error_id", sa.Text),
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
IS_SET_ASIDE: Final = sa.text(_SET_ASIDE)
"""Events that could not be published; literally the condition of the index."""
_partial_index("outbox_set_aside", outbox.c.id, where=sa.text(_SET_ASIDE))

rate_buckets = sa.Table(
    "rate_buckets",
    metadata,
    sa.Column("name", Key, primary_key=True),
    sa.Column("full_at", sa.Double, nullable=False),
    postgresql_with={"fillfactor": 50},
)
"""The token buckets that workers share; `full_at`: when each is full again, in seconds since 1970 by the database's clock."""

suspects = sa.Table(
    "suspects",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("worker_id", Key, nullable=False),
    sa.Column("deaths", sa.Integer, nullable=False, server_default=sa.text("0")),
)
"""Rows that were taken over repeatedly, while a worker pushes them: `id` is the row's, `deaths` how many workers died while they
pushed it, before this one."""

webhook_deliveries = sa.Table(
    "webhook_deliveries",
    metadata,
    sa.Column("id", RowId, sa.Identity(always=True), primary_key=True),
    sa.Column("endpoint_id", Key, nullable=False),
    sa.Column("event_id", Key, nullable=False),
    sa.Column("event_type", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("trace", sa.Text),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("created_at", Moment, nullable=False),
    sa.Column("retrying_since", Moment, nullable=False),
    sa.Column("due_at", Moment),
    sa.Column("ended_at", Moment),
    sa.Column("claims", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("tries", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("attempts", sa.Text, nullable=False, server_default=sa.text("'[]'")),
    sqlite_autoincrement=True,
)
"""Deliveries to customers' endpoints, and their results. `due_at` is set while one is pending; a claim postpones it, so that a
delivery whose claimant dies is due again. `retrying_since`: the first attempt of this series; before that, when it was queued.
`claims` numbers the claims, to distinguish them."""

sa.Index("webhook_deliveries_event", webhook_deliveries.c.endpoint_id, webhook_deliveries.c.event_id, unique=True)
_partial_index(
    "webhook_deliveries_due",
    webhook_deliveries.c.endpoint_id,
    webhook_deliveries.c.due_at,
    where=sa.text("due_at IS NOT NULL"),
)
sa.Index("webhook_deliveries_endpoint", webhook_deliveries.c.endpoint_id, webhook_deliveries.c.id)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", Moment, nullable=False),
    sa.Column("actor_kind", sa.Text, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("origin", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("workspace_id", sa.Text),
    sa.Column("target", sa.Text),
    sa.Column("result", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("details", sa.Text, nullable=False),
    # Written by versions that chained the entries. A later migration drops them, once no such process can run any more.
    sa.Column("previous_hash", sa.Text, nullable=False, default=""),
    sa.Column("hash", sa.Text, nullable=False, default=""),
)
"""The audit trail, as in `AuditEntry`. Triggers reject changes and deletions."""

_APPEND_ONLY: Final = {
    "sqlite": tuple(
        f"CREATE TRIGGER audit_no_{change.lower()} BEFORE {change} ON audit "
        "BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END"
        for change in ("UPDATE", "DELETE")
    ),
    "postgresql": (
        """CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'the audit trail is append-only'; END $$""",
        """CREATE TRIGGER audit_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
        FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()""",
    ),
}


def _append_only(_table: sa.Table, connection: sa.Connection, **_options: Any) -> None:
    for statement in _APPEND_ONLY[connection.dialect.name]:
        connection.exec_driver_sql(statement)


sa.event.listen(audit, "after_create", _append_only)

audit_head = sa.Table(
    "audit_head",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.Text, nullable=False, default=""),  # as in `audit`
)
"""The number of the last entry, in one row, which an append locks."""
