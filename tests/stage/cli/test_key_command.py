"""`forwarder key …`: limits given, changed and listed, and what is said of those that make no sense."""

import json
from pathlib import Path
from typing import Any

import pytest

from forwarder.cli.program import run


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(data_dir)
    monkeypatch.setenv("FORWARDER_DATA_DIR", ".")
    _forwarder(monkeypatch, capsys, "workspace", "add", "acme")


def _forwarder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["forwarder", *arguments])
    with pytest.raises(SystemExit) as ended:
        run()
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_a_key_is_given_a_limit_and_another_and_then_the_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked(*arguments: str) -> Any:
        code, out, err = _forwarder(monkeypatch, capsys, *arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    made = asked("key", "add", "--workspace", "acme", "--rate", "100/60s")
    assert made["rate"] == "100/60s"
    for given, shown in (("5/1s", "5/1s"), ("default", None)):
        assert asked("key", "change", made["id"], "--rate", given)["rate"] == shown
        (listed,) = asked("key", "list", "--workspace", "acme")
        assert {**listed, "createdAt": None} == {
            "id": made["id"],
            "name": None,
            "workspace": "acme",
            "test": False,
            "scopes": ["submit", "read", "cancel"],
            "rate": shown,
            "from": [],
            "createdAt": None,
            "expiresAt": None,
            "lastUsedAt": None,
            "revokedAt": None,
        }
    asked("key", "revoke", made["id"])
    (listed,) = asked("key", "list")
    assert listed["revokedAt"] >= listed["createdAt"]


def test_a_key_is_given_scopes_an_expiry_and_addresses_and_others_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked(*arguments: str) -> Any:
        code, out, err = _forwarder(monkeypatch, capsys, "key", *arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    terms = (
        "--scope",
        "webhooks,read",
        "--expires",
        "2061-12-31",
        "--from",
        "203.0.113.0/24",
        "--from",
        "2001:db8::/32",
    )
    made = asked("add", "--workspace", "acme", *terms)
    assert (made["scopes"], made["from"]) == (["read", "webhooks"], ["203.0.113.0/24", "2001:db8::/32"])
    assert made["expiresAt"] == "2062-01-01T00:00:00.000Z"
    changed = asked("change", made["id"], "--scope", "submit", "--expires", "never")
    assert (changed["scopes"], changed["expiresAt"], changed["from"]) == (["submit"], None, made["from"])
    asked("change", made["id"], "--from", "any")
    (listed,) = asked("list")
    assert listed == changed | {"from": []}
    code, out, _ = _forwarder(monkeypatch, capsys, "key", "list")
    assert (code, "\tsubmit\t" in out) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("add", "--workspace", "acme", "--rate", "fast"), 2, "100/60s"),
        (("change", "key_none", "--rate", "0/60s"), 2, "100/60s"),
        (("change", "key_none", "--rate", "1/60s"), 1, "key_none"),
        (("change", "key_none"), 2, "--scope"),
        (("add", "--workspace", "acme", "--scope", "write"), 2, "submit, read, cancel, webhooks, operate"),
        (("add", "--workspace", "acme", "--expires", "2001-01-01"), 2, "past"),
        (("add", "--workspace", "acme", "--expires", "2061-01-01T00:00:00"), 2, "2031-12-31T12:00:00Z"),
        (("add", "--workspace", "acme", "--from", "203.0.113.7/24"), 2, "203.0.113.0/24"),
    ],
)
def test_what_is_no_limit_or_no_key_is_said(
    arguments: tuple[str, ...],
    code: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended, _, err = _forwarder(monkeypatch, capsys, "key", *arguments)
    assert (ended, says in err) == (code, True), err


def test_a_key_is_given_a_name_another_and_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked(*arguments: str) -> Any:
        code, out, err = _forwarder(monkeypatch, capsys, "key", *arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    made = asked("add", "--workspace", "acme", "--name", "Channel manager")
    assert made["name"] == "Channel manager"
    for given, shown in (("Maria, operations", "Maria, operations"), ("", None)):
        assert asked("change", made["id"], "--name", given)["name"] == shown
        (listed,) = asked("list")
        assert listed["name"] == shown
    for wrong in ("x" * 101, "a\nb"):
        code, _, err = _forwarder(monkeypatch, capsys, "key", "change", made["id"], "--name", wrong)
        assert (code, "100 printable characters" in err) == (2, True)


def test_a_workspace_is_given_a_limit_and_another_and_then_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _forwarder(monkeypatch, capsys, "workspace", "add", "other", "--rate", "100/60s")[0] == 0
    shown = []
    for rate in ("5/1s", "none"):
        shown.append(json.loads(_forwarder(monkeypatch, capsys, "workspace", "show", "other", "--json")[1])["rate"])
        assert _forwarder(monkeypatch, capsys, "workspace", "change", "other", "--rate", rate)[0] == 0
    (last,) = [
        each["rate"]
        for each in json.loads(_forwarder(monkeypatch, capsys, "workspace", "list", "--json")[1])
        if each["id"] == "other"
    ]
    assert (*shown, last) == ("100/60s", "5/1s", None)
    code, _, err = _forwarder(monkeypatch, capsys, "workspace", "change", "other", "--rate", "fast")
    assert (code, "--rate: A rate limit is written as calls and whole seconds, such as 100/60s." in err) == (2, True)
    assert _forwarder(monkeypatch, capsys, "workspace", "change", "nobody", "--rate", "1/1s")[0] == 1
