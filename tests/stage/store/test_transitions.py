"""The table of transitions says what the statements check."""

import re

from sqlalchemy.dialects import sqlite

from forwarder.store.submissions import cancellations, intake, leases, recorder, repairs
from tests.support.cases import for_each
from tools.reference.transition_table import TRANSITIONS, Check, Transition

_DIALECT = sqlite.dialect()
_MODULES = {
    "cancellations": cancellations,
    "intake": intake,
    "leases": leases,
    "recorder": recorder,
    "repairs": repairs,
}
_IN_SQL = {
    Check.HOLDER: r"coalesce\(reservations\.leased_by, ''\) = ",
    Check.NO_HOLDER: r"reservations\.leased_by IS NULL",
    Check.REVISION: r"reservations\.revision = ",
    Check.TRIES: r"reservations\.tries = ",
    Check.STATUS: r"(?:reservations\.status|coalesce\(reservations\.status, ''\)) = ",
}
"""Where its row is found. The turn is taken by whoever carries the statement out, or in it."""


@for_each("transition", TRANSITIONS, ids=lambda each: f"{each.statement}: {each.when}")
def test_each_statement_checks_what_the_table_says(transition: Transition) -> None:
    module, name = transition.statement.split(".")
    made = getattr(_MODULES[module], name)
    statement = made() if callable(made) and name != "ingest" else made
    sql = re.sub(r"\s+", " ", str(statement.compile(dialect=_DIALECT))) if name != "ingest" else ""
    condition = sql[sql.rindex("WHERE") :] if "WHERE" in sql else ""
    for check in transition.checks:
        if check in _IN_SQL:
            assert re.search(_IN_SQL[check], condition), (check, sql)


def test_what_a_holder_changes_is_checked_by_holder_and_revision() -> None:
    outcomes_of_pushes = [each for each in TRANSITIONS if each.statement in {"recorder.finish", "leases.postpone"}]
    assert all({Check.HOLDER, Check.REVISION} <= {*each.checks} for each in outcomes_of_pushes)
