"""The store's tables. The statements use them, and a test compares them with the migrations."""

from datetime import date
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.sql.base import ReadOnlyColumnCollection

from forwarder.reservation.outcome import LISTED_STATUSES, Status
from forwarder.store.sql import Moment, literal, utc_day

Key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
"""An identifier: compared byte by byte, which is what indexes on it are fastest with."""

PENDING, IN_DOUBT, CONFIRMED, CANCELLED = POSSIBLE_STATUSES = tuple(
    literal(status) for status in (Status.PENDING, Status.IN_DOUBT, Status.CONFIRMED, Status.CANCELLED)
)
"""Of rows that led or may lead to a reservation: only these are searched for repeats. In the order of the indexes' conditions,
because SQLite uses a partial index only for a statement with the same list in the same order."""

RowId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
metadata = sa.MetaData()
_KINDS: Final[dict[str, Any]] = {"key": Key, "text": sa.Text, "date": sa.Date, "moment": Moment, "bool": sa.Boolean}
_KINDS.update(int=sa.Integer, bigint=sa.BigInteger, float=sa.Double)


def _table(name: str, columns: str, *others: sa.Column[Any], **options: Any) -> sa.Table:
    """A table with columns as in CREATE TABLE, of the types in `_KINDS`. `serial`: its primary key, numbered by the database."""
    made: list[sa.Column[Any]] = []
    for declared in columns.split(","):
        column, kind, *rest = declared.split()
        if kind == "serial":
            made.append(sa.Column(column, RowId, sa.Identity(always=True), primary_key=True))
            continue
        constraint, _, default = " ".join(rest).partition("DEFAULT ")
        key, server_default = constraint == "PRIMARY KEY", sa.text(default) if default else None
        about: dict[str, Any] = {"primary_key": key, "autoincrement": False, "server_default": server_default}
        made.append(sa.Column(column, _KINDS[kind], nullable=not constraint, **about))
    return sa.Table(name, metadata, *made, *others, **options)


def _partial_index(name: str, *columns: sa.ColumnElement[Any], where: sa.ColumnElement[bool] | sa.TextClause) -> None:
    """An index of the rows for which `where` is true; it serves only statements with exactly that condition."""
    sa.Index(name, *columns, postgresql_where=where, sqlite_where=where)


reservations = _table(
    "reservations",
    """id serial, request_id key NOT NULL, record_id bigint NOT NULL, workspace_id text NOT NULL, account_id key NOT NULL,
    partition int NOT NULL, log_offset bigint NOT NULL DEFAULT 0, log_timestamp_ms bigint NOT NULL DEFAULT 0,
    operation text NOT NULL, property_id text NOT NULL, room_id text NOT NULL, arrival_date date NOT NULL,
    departure_date date NOT NULL, status text NOT NULL, request text NOT NULL, fingerprint text NOT NULL, card text,
    accepted_at moment NOT NULL, created_at moment NOT NULL, updated_at moment NOT NULL, cancelled_at moment,
    deadline_at moment NOT NULL, due_at moment, leased_by key, pushing bool NOT NULL DEFAULT false,
    possibly_sent bool NOT NULL DEFAULT false, target text, evidence text, doubles text, takeovers int NOT NULL DEFAULT 0,
    attempts text NOT NULL DEFAULT '[]', tries int NOT NULL DEFAULT 0, revision int NOT NULL DEFAULT 0,
    pms_reservation_id text, record text, problem text, trace text, api_key_id text, cancel_requested_at moment,
    cancel_reason text, cancel_problem text, natural_key key, transaction_key key, keyed bool NOT NULL DEFAULT false,
    transaction_of text, anonymized_at moment, failure_class text, same_key key, stay_key key, similar_to text,
    conflicting_at moment""",
    sqlite_autoincrement=True,
    # A row is written twice: when it is ingested, and with its outcome. Rows of the usual size stay uncompressed in the page,
    # because compressing each costs more than it saves.
    postgresql_with={"toast_tuple_target": 8160, "autovacuum_vacuum_scale_factor": 0.05},
)
"""One row per submission. `status` is a value of `Status`. `request`, `card`, `attempts`, `record`, `problem`, `cancel_problem`,
`similar_to` and `doubles` are JSON texts.

- `id`: increases in the order of ingestion; lists, their cursors and the other tables use it.
- `record_id`: the record's `id` that callers see, derived from the request id.
- `partition`, `log_offset`, `log_timestamp_ms` (UTC, since 1970): of its message on the requests topic. A negative offset is of a
  topic that was lost since.
- `card`: the card, sealed under keys that are in `card_keys`; null once the outcome is final.
- `due_at`: when the row is (or was) due; null once nothing is left to do, or only an operator can. `deadline_at`: until when the
  forwarder tries it. `leased_by`: the worker that holds it.
- `pushing`, `target`, `takeovers`, `tries`, `similar_to`: as in `Work`. `attempts` may not hold all tries.
- `possibly_sent`: an earlier push may have made a reservation. `evidence`: the pushes and their results (`reservation.evidence`),
  one JSON object a line. `doubles`, `cancel_problem`: as in `Ended`.
- `natural_key`, `transaction_key`, `keyed`: as in `NaturalKey`; `keyed` also if a keyed submission repeated it.
- `same_key`, `stay_key`: as in `NaturalKey`; NULL in rows of releases before 0.2.
- `conflicting_at`: when the last submission with another body under its idempotency key was accepted, which was not made.
- `transaction_of`: no longer written. Releases before 0.2 refused a submission that reused the transaction of the named one.
- `failure_class`: of its dead letter, if FAILED.
- `anonymized_at`: when its guest's data was removed (`reservation.anonymous`); null again once work on it resumes."""

_row = reservations.c
sa.Index("reservations_request_id", _row.request_id, unique=True)
sa.Index("reservations_record_id", _row.record_id, unique=True)
IS_LISTED: Final = _row.status.not_in([literal(status) for status in sorted(set(Status) - LISTED_STATUSES)])
"""The default filter of a list. A partial index serves only statements with exactly its condition."""
_partial_index("reservations_listed", _row.account_id, _row.id, where=IS_LISTED)
# One for each filter of a list, with ids last, because lists are read in the order of ids.
sa.Index("reservations_status", _row.account_id, _row.status, _row.id)
sa.Index("reservations_property", _row.account_id, _row.property_id, _row.id)
sa.Index("reservations_arrival", _row.account_id, _row.arrival_date, _row.id)
sa.Index("reservations_departure", _row.account_id, _row.departure_date, _row.id)
# By day, because there are few days. The moment is last in the index, so that older rows are skipped unread.
sa.Index("reservations_updated", _row.account_id, utc_day(_row.updated_at), _row.id, _row.updated_at)
# Claimable rows, in the order of claims. The partition is last, so that rows of other workers' partitions are skipped unread.
_unheld = sa.text("due_at IS NOT NULL AND leased_by IS NULL")
_partial_index("reservations_due", _row.account_id, _row.due_at, _row.id, _row.partition, where=_unheld)
# For operators, who look up reservations by the PMS's id.
_partial_index("reservations_pms_id", _row.pms_reservation_id, _row.id, where=sa.text("pms_reservation_id IS NOT NULL"))
_partial_index("reservations_doubles", _row.id, where=sa.text("doubles IS NOT NULL"))
_unheld_pending = sa.text(f"status <> 'IN_DOUBT' AND {_unheld}")
_partial_index("reservations_deadline", _row.deadline_at, _row.id, _row.partition, where=_unheld_pending)
_partial_index("reservations_leased", _row.leased_by, where=sa.text("leased_by IS NOT NULL"))

_departed_later = sa.and_(_row.status == CONFIRMED, _row.departure_date > utc_day(_row.updated_at))
_departure = sa.case((_departed_later, _row.departure_date))
FINISHED_DAY: Final[sa.ColumnElement[date]] = sa.func.coalesce(_departure, utc_day(_row.updated_at))
"""The day on which a submission is finished: of the guest's departure if confirmed and later, else of its outcome."""
IS_IDENTIFIABLE = sa.text("anonymized_at IS NULL AND due_at IS NULL AND leased_by IS NULL AND status <> 'IN_DOUBT'")
"""Finished rows that still have their guest's data; literally the condition of the index."""
_partial_index(
    "reservations_identifiable", _row.workspace_id, _row.status, FINISHED_DAY, _row.id, where=IS_IDENTIFIABLE
)
IS_OPEN_FAILURE: Final = sa.text("status = 'FAILED' AND anonymized_at IS NULL")
"""Failed submissions that can be replayed; literally the condition of the index."""
_partial_index("reservations_failed", _row.account_id, _row.failure_class, where=IS_OPEN_FAILURE)


def recognised_by(columns: ReadOnlyColumnCollection[str, Any]) -> sa.ColumnElement[str]:
    """The key that repeats are searched by: the transaction, or else the natural key. Different transactions never share it."""
    return sa.func.coalesce(columns.transaction_key, columns.natural_key)


_POSSIBLE = f"status IN ({', '.join(map(str, POSSIBLE_STATUSES))})"
_has_natural = sa.text(f"natural_key IS NOT NULL AND {_POSSIBLE}")
_partial_index("reservations_recognised", recognised_by(_row), _row.id, where=_has_natural)
# By both, so that the same content is found at once, regardless of how many have the same stay.
_has_stay = sa.text(f"stay_key IS NOT NULL AND {_POSSIBLE}")
_partial_index("reservations_stay", _row.stay_key, _row.same_key, _row.id, where=_has_stay)

card_keys = _table(
    "card_keys",
    """request_id key PRIMARY KEY, secret_id text NOT NULL, number_key text NOT NULL, code_key text, expires_at moment NOT NULL,
    sealing_key key""",
)
"""The keys of the cards in open rows, wrapped by the secret; `code_key` is the security code's. A card whose key is deleted can no
longer be opened; so exclude this table from backups. `sealing_key`: the key in `sealing_keys` that the card is still sealed to,
because the worker that ingested it lacked the secret; that key is kept until the card is resealed."""

duplicates = _table(
    "duplicates",
    """request_id key PRIMARY KEY, account_id key NOT NULL, duplicate_of key NOT NULL, accepted_at moment NOT NULL,
    fingerprint text NOT NULL""",
)
"""Submissions that repeated an earlier one: `duplicate_of` is the request id of that one, which has a row. Each confirmed
submission whose row was purged is recorded as a duplicate of itself."""

purges = _table("purges", "finished_before date PRIMARY KEY, purged_at moment NOT NULL")
"""The days before which rows of finished submissions were purged, so that their absence is not taken for a restore."""

recoveries = _table("recoveries", "began_at moment PRIMARY KEY, since moment, recovered_at moment")
"""The runs of `forwarder recover`. `since`: the time from which topics are read, null for all messages. `recovered_at`: when it
finished; acknowledgements from before no longer prove a loss. Null if it was interrupted: workers wait until it is run again."""

log_gaps = _table(
    "log_gaps",
    """topic key PRIMARY KEY, partition int PRIMARY KEY, position bigint PRIMARY KEY, resumed_at bigint NOT NULL,
    noted_at moment NOT NULL""",
)
"""Messages that a topic lost before its consumer group received them, as in `LogGap`, until an operator accepts that."""

parked_cancellations = _table(
    "parked_cancellations",
    "request_id key PRIMARY KEY, account_id key NOT NULL, requested_at moment NOT NULL, reason text, trace text",
)
"""Cancellations that arrived before their submission."""

workers = _table(
    "workers",
    "id key PRIMARY KEY, sequence bigint NOT NULL, lease_seconds float NOT NULL, checked text",
    postgresql_with={"fillfactor": 50},
)
"""The lease holders. `sequence` counts renewals: a worker whose sequence does not change for `lease_seconds`, by the clock of the
worker that watches, has lost its lease. The rows of a worker that is not in this table will soon be freed."""

processes = _table(
    "processes",
    """id key PRIMARY KEY, role text NOT NULL, version text NOT NULL, revision text NOT NULL, host text NOT NULL,
    started_at moment NOT NULL, seen_at moment NOT NULL, throttles text NOT NULL, failing text NOT NULL DEFAULT '[]'""",
    postgresql_with={"fillfactor": 50},
)
"""The running processes, as in `RunningProcess`; `throttles` and `failing` are JSON. Updated every few seconds, for operators."""

set_aside = _table(
    "set_aside",
    "failure_class key PRIMARY KEY, messages bigint NOT NULL, first_at moment NOT NULL, last_at moment NOT NULL",
)
"""How many messages of the requests topic workers set aside as dead letters, by class, since an operator last acknowledged them."""

outbox = _table(
    "outbox",
    """id serial, reservation_id bigint NOT NULL, request_id text NOT NULL, revision int NOT NULL, status text NOT NULL,
    key text NOT NULL, occurred_at text NOT NULL, data text NOT NULL, trace text, dead_letter text,
    publish_attempted_at moment NOT NULL, faults int NOT NULL DEFAULT 0, error_id text""",
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

IS_SET_ASIDE: Final = sa.text("faults > 0")  # events that could not be published; literally the index's condition
_partial_index("outbox_set_aside", outbox.c.id, where=IS_SET_ASIDE)

rate_buckets = _table(
    "rate_buckets", "name key PRIMARY KEY, full_at float NOT NULL", postgresql_with={"fillfactor": 50}
)
"""The token buckets that workers share; `full_at`: when each is full again, in seconds since 1970 by the database's clock."""

suspects = _table("suspects", "id bigint PRIMARY KEY, worker_id key NOT NULL, deaths int NOT NULL DEFAULT 0")
"""Rows taken over repeatedly, while a worker pushes them; `deaths`: how many workers before this one died while they pushed it."""

webhook_deliveries = _table(
    "webhook_deliveries",
    """id serial, endpoint_id key NOT NULL, event_id key NOT NULL, event_type text NOT NULL, body text NOT NULL, trace text,
    status text NOT NULL, created_at moment NOT NULL, retrying_since moment NOT NULL, due_at moment, ended_at moment,
    claims int NOT NULL DEFAULT 0, tries int NOT NULL DEFAULT 0, attempts text NOT NULL DEFAULT '[]'""",
    sqlite_autoincrement=True,
)
"""Deliveries to customers' endpoints. `due_at` is set while one is pending; a claim (`claims` numbers them) postpones it, so that
one whose claimant dies is due again. `retrying_since`: the first attempt of this series; before that, when it was queued."""

_delivery = webhook_deliveries.c
sa.Index("webhook_deliveries_event", _delivery.endpoint_id, _delivery.event_id, unique=True)
_partial_index("webhook_deliveries_due", _delivery.endpoint_id, _delivery.due_at, where=sa.text("due_at IS NOT NULL"))
sa.Index("webhook_deliveries_endpoint", _delivery.endpoint_id, _delivery.id)

audit = _table(
    "audit",
    """number bigint PRIMARY KEY, at moment NOT NULL, actor_kind text NOT NULL, actor text NOT NULL, origin text NOT NULL,
    action text NOT NULL, workspace_id text, target text, result text NOT NULL, reason text, details text NOT NULL""",
    # Written by versions that chained the entries. A later migration drops them, once no such process can run any more.
    sa.Column("previous_hash", sa.Text, nullable=False, default=""),
    sa.Column("hash", sa.Text, nullable=False, default=""),
)
"""The audit trail, as in `AuditEntry`. Triggers reject changes and deletions."""

_ABORT = "BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END"
_FUNCTION = """CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'the audit trail is append-only'; END $$"""
_TRIGGER = """CREATE TRIGGER audit_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
        FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"""
for _dialect, _made in (
    ("sqlite", f"CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit {_ABORT}"),
    ("sqlite", f"CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit {_ABORT}"),
    ("postgresql", _FUNCTION),
    ("postgresql", _TRIGGER),
):
    sa.event.listen(audit, "after_create", sa.DDL(_made).execute_if(dialect=_dialect))  # type: ignore[no-untyped-call]

audit_head = _table(
    "audit_head",
    "id int PRIMARY KEY, number bigint NOT NULL",
    sa.Column("hash", sa.Text, nullable=False, default=""),  # as in `audit`
)
"""The number of the last entry, in one row, which an append locks."""
