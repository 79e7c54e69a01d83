"""SQLite finds repeats by an index. It uses a partial index only for a statement that has the index's condition word for word."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy.dialects import sqlite

from forwarder.reservation.submission import POSSIBLE
from forwarder.store.lists.overview import of_transactions
from forwarder.store.submissions.duplicates import alike_of, look
from forwarder.store.tables import POSSIBLE_STATUSES

STATEMENTS = {
    "earlier ones like those just ingested": (look("sqlite"), 3),
    "later ones like those that failed": (alike_of("sqlite"), 2),
    "those with a transaction": (of_transactions(), 1),
}
"""Each statement, and how many searches for repeats it has."""


@pytest.mark.parametrize("name", STATEMENTS)
def test_repeats_are_found_by_an_index(name: str, data_dir: Path) -> None:
    statement, searches = STATEMENTS[name]
    sql = str(statement.compile(dialect=sqlite.dialect()))
    connection = sqlite3.connect(data_dir / "store.sqlite3")
    plan = [step[3] for step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", [1] * sql.count("?"))]
    connection.close()
    by_index = [step for step in plan if "reservations_recognised" in step or "reservations_stay" in step]
    assert len(by_index) == searches, plan


def test_the_statuses_are_those_that_may_have_led_to_a_reservation() -> None:
    assert {str(status) for status in POSSIBLE_STATUSES} == {f"'{status}'" for status in POSSIBLE}
