"""`forwarder workspace …`: added, listed, shown and removed; and what a shell completes."""

import json
from pathlib import Path

import pytest

from forwarder.cli.program import run


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data_dir)
    monkeypatch.setenv("FORWARDER_DATA_DIR", ".")


@pytest.fixture
def forwarder(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> "Forwarder":
    return Forwarder(monkeypatch, capsys)


class Forwarder:
    """Runs the command in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """The exit code, and what was written to standard output and standard error."""
        self._monkeypatch.setattr("sys.argv", ["forwarder", *arguments])
        with pytest.raises(SystemExit) as ended:
            run()
        said = self._capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    def completed(self, typed: str) -> list[str]:
        """What bash is offered for the last word of `typed`."""
        with self._monkeypatch.context() as patched:
            patched.setenv("_FORWARDER_COMPLETE", "complete_bash")
            patched.setenv("COMP_WORDS", typed)
            patched.setenv("COMP_CWORD", str(len(typed.split(" ")) - 1))
            return self()[1].split()


def test_a_workspace_is_listed_shown_and_removed_with_its_keys(forwarder: Forwarder) -> None:
    for name in ("acme", "acme.berlin"):
        assert forwarder("workspace", "add", name)[0] == 0
    key = json.loads(forwarder("key", "add", "--workspace", "acme", "--json")[1])
    listed = json.loads(forwarder("workspace", "list", "--json")[1])
    counts = {"accounts": 0, "keys": 0, "webhooks": 0}
    assert [{**each, "createdAt": None} for each in listed] == [
        {"id": "acme", **counts, "keys": 1, "rate": None, "createdAt": None},
        {"id": "acme.berlin", **counts, "rate": None, "createdAt": None},
    ]
    assert json.loads(forwarder("workspace", "show", "acme", "--json")[1]) == listed[0]

    assert "--yes removes" in forwarder("workspace", "remove", "acme")[1]
    assert "1 keys with it" in forwarder("workspace", "remove", "acme", "--yes")[1]
    assert [each["id"] for each in json.loads(forwarder("workspace", "list", "--json")[1])] == ["acme.berlin"]
    assert key["id"] not in forwarder("key", "list", "--json")[1]
    assert "workspace.remove" in forwarder("audit", "list", "--json")[1]


def test_one_with_an_account_is_not_removed(forwarder: Forwarder) -> None:
    forwarder("workspace", "add", "acme")
    account = ("--workspace", "acme", "--kind", "generic", "--base-url", "https://pms.example.com", "--credential", "x")
    assert forwarder("account", "add", *account)[0] == 0
    for arguments in ((), ("--yes",)):
        code, _, error = forwarder("workspace", "remove", "acme", *arguments)
        assert code == 1
        assert "1 accounts" in error


@pytest.mark.parametrize("name", ["", "a b", "a,b", "-a", "a" * 65, "ä", "a\u202eb"])
def test_a_name_that_no_header_carries_is_refused(forwarder: Forwarder, name: str) -> None:
    code, _, error = forwarder("workspace", "add", "--", name)
    assert code == 2
    assert "1 to 64 letters" in error


@pytest.mark.parametrize("command", [("show",), ("remove",), ("remove", "--yes")])
def test_one_that_is_not_there_is_told(forwarder: Forwarder, command: tuple[str, ...]) -> None:
    code, _, error = forwarder("workspace", *command, "nobody")
    assert code == 1
    assert "There is no workspace 'nobody'" in error


def test_a_shell_completes_commands_groups_and_options(forwarder: Forwarder) -> None:
    assert sorted(forwarder.completed("forwarder work")) == ["worker", "workspace"]
    assert sorted(forwarder.completed("forwarder workspace ")) == ["add", "change", "list", "remove", "show"]
    assert "--duplicate-window" in forwarder.completed("forwarder account set --")
