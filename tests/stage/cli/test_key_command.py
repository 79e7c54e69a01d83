"""`forwarder key …`: limits given, changed and listed, and what is said of those that make no sense."""

import json
from pathlib import Path
from typing import Any

import pytest

from forwarder.cli.program import run


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORWARDER_DATA_DIR", ".forwarder")
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
        assert asked("key", "set-rate", made["id"], given) == {"id": made["id"], "rate": shown}
        (listed,) = asked("key", "list", "--workspace", "acme")
        assert {**listed, "createdAt": None} == {
            "id": made["id"],
            "workspace": "acme",
            "test": False,
            "rate": shown,
            "createdAt": None,
            "revokedAt": None,
        }
    asked("key", "revoke", made["id"])
    (listed,) = asked("key", "list")
    assert listed["revokedAt"] >= listed["createdAt"]
    assert asked("key", "list", "--workspace", "none") == []


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("add", "--workspace", "acme", "--rate", "fast"), 2, "100/60s"),
        (("set-rate", "key_none", "0/60s"), 2, "100/60s"),
        (("set-rate", "key_none", "1/60s"), 1, "key_none"),
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
