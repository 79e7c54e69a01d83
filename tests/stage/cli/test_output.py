"""What commands print comes from anywhere: no terminal is to obey it."""

import json
from typing import Any

import pytest

from forwarder.observability.logging import printable
from forwarder.operate.deployment.audit import details_of
from forwarder.operate.output import Table, fields_of, json_line, show
from forwarder.store.audit import AuditEntry
from tests.support.worker.works import NOW

HOSTILE = "Ann\x9b31m\x85\u202eevil\ud800 \x1b[2J"


def test_json_has_no_control_character_and_says_the_same() -> None:
    line = json_line({"guest": HOSTILE})
    assert all(character.isprintable() for character in line)
    assert json.loads(line) == {"guest": HOSTILE}


def test_a_tables_cell_has_none_either() -> None:
    assert all(character.isprintable() for character in printable(HOSTILE))


def test_yes_no_and_nothing_are_words_in_tables(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"id": "acc", "paused": True, "test": False, "rate": None, "types": ["a", "b"], "tries": [{"ms": 3}]}
    show(Table([row], list(row)[:5]), fields_of(row))
    assert capsys.readouterr().out.splitlines() == [
        "id\tpaused\ttest\trate\ttypes",
        "acc\tyes\tno\t\ta, b",
        "id\tacc",
        "paused\tyes",
        "test\tno",
        "rate\t",
        "types\ta, b",
        'tries\t[{"ms": 3}]',
    ]


@pytest.mark.parametrize(
    ("details", "line"),
    [
        ({"kind": "generic", "changed": {}}, "kind: generic, changed: nothing"),
        (
            {
                "changed": {
                    "concurrency": {"from": 64, "to": 32},
                    "credential": "changed",
                    "similar": {"from": None, "to": []},
                }
            },
            "changed: concurrency 64 → 32, credential changed, similar none → none",
        ),
        (
            {"test": True, "revoked": False, "rate": None, "submissions": ["rsv_1", "rsv_2"]},
            "test: yes, submissions: rsv_1 rsv_2",
        ),
    ],
)
def test_an_audit_entrys_details_are_one_line(details: dict[str, Any], line: str) -> None:
    entry = AuditEntry(
        NOW, "operator", "ann", "host", "account.change", "demo", "acc", "done", None, json.dumps(details)
    )
    assert details_of(entry) == line
