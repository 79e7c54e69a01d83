"""`forwarder adapters` as operators and authors of adapters use it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from forwarder.cli.program import run
from forwarder.operate.command import credential_from, options_from
from forwarder.operate.output import WrongUsage
from forwarder.pms.registry import KINDS
from tests.support.deployment import warm
from tests.support.deployment.guide import write_distribution

ROOT = Path(__file__).parents[3]


def _forwarder(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    found = os.pathsep.join(map(str, [ROOT] if path is None else [path, ROOT]))
    return warm.run(["adapters", *arguments], {**os.environ, "PYTHONPATH": found})


def test_every_kind_is_listed_with_what_an_operator_needs_to_know() -> None:
    rows = {row["kind"]: row for row in json.loads(_forwarder("list", "--json").stdout)}
    assert sorted(rows) == sorted(KINDS)
    sync = rows["booking-sync"]
    assert sync["from"] == "built in"
    assert sync["capabilities"] == {
        "idempotentCreate": False,
        "findByReference": True,
        "cancel": True,
        "mostPerCreate": 1,
    }
    assert sync["limits"] == [{"requests": 1000, "seconds": 3600.0}]
    payment = {option["name"]: option for option in rows["cloudbeds"]["options"]}["paymentMethod"]
    assert payment == {
        "name": "paymentMethod",
        "type": "text",
        "choices": ["cash", "credit", "ebanking", "pay_pal"],
        "required": False,
        "default": "cash",
        "description": "How the guest pays the property.",
    }
    assert all(option["description"] for row in rows.values() for option in row["options"])


def test_what_becomes_of_each_field_is_shown_by_the_options_of_an_account() -> None:
    shown = _forwarder("fields", "cloudbeds", "--option", "notesField=wishes", "--json")
    rows = {row["field"]: row["becomes"] for row in json.loads(shown.stdout)}
    assert rows["numberOfPets"] == "in customFields[0][fieldValue]"
    assert rows["cardDetails.cvv"].startswith("not sent: sensitive")
    assert _forwarder("fields", "fax").returncode == 2
    wrong = _forwarder("fields", "cloudbeds", "--option", "sourceId=7")
    assert (wrong.returncode, "sourceId" in wrong.stderr) == (2, True)


def test_one_that_cannot_be_loaded_is_listed_with_why(tmp_path: Path) -> None:
    write_distribution(tmp_path, "acme-fax", "1.0", {"fax": "acme_missing:Fax"})
    listed = json.loads(_forwarder("list", "--json", path=tmp_path).stdout)
    (lost,) = [row for row in listed if "error" in row]
    assert (lost["kind"], lost["from"]) == ("fax", "acme-fax 1.0")
    assert "acme_missing" in lost["error"]
    shown = _forwarder("list", path=tmp_path)
    assert "Not loaded:" in shown.stdout
    assert "booking-sync" in shown.stdout
    assert shown.stderr == ""


def test_a_kind_is_checked_against_the_simulator() -> None:
    done = _forwarder("check", "website-builder", "--check", "cancels", "--check", "creates-batches", "--json")
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)
    assert (first["check"], first["verdict"], first["findings"]) == ("cancels", "passed", [])
    assert (second["verdict"], second["findings"]) == ("not applicable", ["it takes one at a time"])


def test_an_adapter_that_breaks_its_word_fails_the_command(tmp_path: Path) -> None:
    write_distribution(tmp_path, "acme-fax", "1.0", {"fax": "tests.support.pms.wrong_adapters:CancelsNothing"})
    options = ["--base-url", "http://127.0.0.1:9/nothing", "--check", "cancels", "--check", "describes-its-options"]
    done = _forwarder("check", "fax", *options, path=tmp_path)
    assert done.returncode == 1
    assert "a plain create with nothing in its way came to InDoubt" in done.stdout
    assert "forwarder: 1 of 2 checks failed: cancels." in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("check", "Missing argument 'kind'"),
        ("check fax", "there are: beds24"),
        ("check generic --check nonsense", "makes-reservations"),
        ("check generic --base-url https://pms.test --option station", "NAME=VALUE"),
        ("check generic --base-url https://pms.test --credential-file /nowhere/at/all", "cannot be read"),
        ("check generic --base-url https://pms.test --first-night tomorrow", "tomorrow"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(
    arguments: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["forwarder", "adapters", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        run()
    said = capsys.readouterr()
    assert (ended.value.code, says in said.err, said.out) == (2, True, "")


def test_what_a_kind_would_send_is_shown_and_nothing_is_sent() -> None:
    done = _forwarder("try", "lodgify", "--property", "77", "--json")
    tried = json.loads(done.stdout)
    assert [(one["step"], one["method"]) for one in tried["requests"]] == [
        ("create", "POST"),
        ("create", "PUT"),
        ("find", "GET"),
        ("cancel", "DELETE"),
    ]
    first = tried["requests"][0]
    assert first["url"] == "https://api.lodgify.com/v1/reservation/booking"
    assert first["body"]["property_id"] == 77
    assert first["headers"]["X-ApiKey"] == "***"
    assert tried["assumed"]
    shown = _forwarder("try", "generic").stdout
    assert "411111******1111" in shown
    assert "4111 1111 1111 1111" not in shown
    assert "826" not in shown
    refused = _forwarder("try", "hostify", "--property", "A7")
    assert (refused.returncode, "propertyId" in refused.stderr) == (1, True)
    lacking = _forwarder("try", "hostfully")
    assert (lacking.returncode, "agencyUid" in lacking.stderr) == (2, True)


def test_what_a_mapping_of_ones_own_would_send_goes_where_it_says(tmp_path: Path) -> None:
    mapping = tmp_path / "map.yaml"
    given = ("try", "generic", "--options-file", str(mapping))
    mapping.write_text("baseUrl: https://pms.test/v4\ncreate: {path: /b, body: {ref: reference}}\n")
    assert "POST https://pms.test/v4/b" in _forwarder(*given).stdout


def test_a_kind_that_nothing_simulates_needs_a_pms(tmp_path: Path) -> None:
    write_distribution(tmp_path, "acme-fax", "1.0", {"fax": "tests.support.pms.wrong_adapters:CancelsNothing"})
    done = _forwarder("check", "fax", path=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--base-url" in done.stderr


def test_options_come_from_a_file_and_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "options.toml").write_text('station = "main"\nlines = 3\n[rates]\nA = "B"\n')
    (tmp_path / "options.json").write_text('{"station": "main"}')
    table = {"station": "main", "lines": 3, "rates": {"A": "B"}}
    assert options_from(None, tmp_path / "options.toml") == table
    assert options_from(["lines=4", "note=at=noon", "on=true"], tmp_path / "options.toml") == {
        **table,
        "lines": 4,
        "note": "at=noon",
        "on": True,
    }
    assert options_from([], tmp_path / "options.json") == {"station": "main"}
    assert options_from(None, None) == {}


@pytest.mark.parametrize(("name", "text"), [("o.json", "[1]"), ("o.json", "{"), ("o.toml", "a ="), ("o.json", None)])
def test_a_file_that_holds_no_options(tmp_path: Path, name: str, text: str | None) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(WrongUsage, match=name):
        options_from(None, tmp_path / name)


def test_a_mapping_comes_from_a_file_and_its_faults_with_their_lines(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("create:\n  path: /b\n  body: {ref: reference}\n")
    bad.write_text("create:\n  path: /b\n  body: {ref: referense}\nfnd: {}\n")
    assert options_from(None, good) == {"mapping": good.read_text()}
    with pytest.raises(WrongUsage) as raised:
        options_from(None, bad)
    said = str(raised.value)
    assert re.search(r"bad\.yaml, line 3: create\.body\.ref.*did you mean 'reference'", said)
    assert re.search(r"bad\.yaml, line 4: fnd: there is no fnd here; did you mean 'find'", said)


def test_a_credential_comes_from_a_file_without_its_line_feed(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("se cret\n")
    assert credential_from(None, tmp_path / "key") == "se cret"
    assert credential_from("given", None) == "given"
    assert credential_from(None, None) == ""
    with pytest.raises(WrongUsage):
        credential_from("given", tmp_path / "key")
