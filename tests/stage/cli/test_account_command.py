"""`forwarder account add` and `set`: options and credentials, from files and not, and what is said of those that are wrong."""

import asyncio
import io
import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from forwarder.assembly.backend import secret_in
from forwarder.cli.program import run
from forwarder.reservation.checks.fields import CHECKS
from forwarder.reservation.evidence import ANOTHER_PMS
from forwarder.store.engine import open_engine
from forwarder.tenancy.port import Account
from forwarder.tenancy.sealing import Keyring, of_client_key, of_credential
from forwarder.tenancy.sql.admin import TenancyAdmin
from forwarder.tenancy.sql.directory import CacheTimes
from tests.support.backends import missing
from tests.support.sealing import keyring_of
from tools.servers.certificates import Authority
from tools.servers.ladder import Unavailable

OAUTH = '{"clientId": "app", "clientSecret": "s3cr3t", "refreshToken": "r-0"}'


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str


class Command:
    """Runs commands in a directory with an embedded forwarder of its own, in which there is the workspace "acme"."""

    def __init__(self, run_in: Path, run_command: Callable[[tuple[str, ...], str], Ended]) -> None:
        self.directory = run_in
        self._run = run_command
        assert self("workspace", "add", "acme").code == 0

    def __call__(self, *arguments: str, given: str = "") -> Ended:
        return self._run(arguments, given)

    def add(self, *arguments: str) -> Ended:
        where = (
            "--workspace",
            "acme",
            "--kind",
            "booking-sync",
            "--base-url",
            "https://pms.test/api/v3",
            "--id",
            "acc",
        )
        return self("account", "add", *where, *arguments)


@pytest.fixture
def command(
    tmp_path: Path, migrated_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORWARDER_DATA_DIR", ".forwarder")
    (tmp_path / ".forwarder").mkdir()
    shutil.copy(migrated_file, tmp_path / ".forwarder")

    def run_command(arguments: tuple[str, ...], given: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["forwarder", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        with pytest.raises(SystemExit) as ended:
            run()
        said = capsys.readouterr()
        code = ended.value.code
        return Ended(code if isinstance(code, int) else 0, said.out, said.err)

    return Command(tmp_path, run_command)


def listed(command: Command) -> dict[str, Any]:
    answer = command("account", "list", "--json")
    [account] = json.loads(answer.out)
    assert not [secret for secret in ("s3cr3t", "r-0", "plain") if secret in answer.out]
    assert isinstance(account, dict)
    return account


def stored(command: Command) -> Account:
    async def read() -> Account:
        engine = open_engine(command.directory / ".forwarder" / "store.sqlite3")
        try:
            [account] = await TenancyAdmin(engine).accounts()
            return account
        finally:
            await engine.dispose()

    return asyncio.run(read())


def unsealer(command: Command) -> Keyring:
    return keyring_of(secret_in(command.directory / ".forwarder"))


def credential(command: Command) -> str:
    """What the worker would be let in with."""
    account = stored(command)
    return unsealer(command).open_text(account.credential, of_credential(account))


def test_options_are_given_one_by_one_or_in_a_file(command: Command) -> None:
    (command.directory / "options.toml").write_text(
        'sourceId = 7\ncheckinTime = "16:00"\n[securePayments]\ngatewayId = "1"\ngatewayName = "stripe"\n'
    )
    options = ("--options-file", "options.toml", "--option", "checkinTime=15:00", "--option", "liveQuote=true")
    added = command.add(*options)
    assert added.code == 0, added.err
    assert listed(command)["options"] == {
        "sourceId": 7,
        "checkinTime": "15:00",
        "securePayments": {"gatewayId": "1", "gatewayName": "stripe"},
        "liveQuote": True,
    }


def test_a_credential_comes_from_a_file_or_from_standard_input(command: Command) -> None:
    (command.directory / "credential.json").write_text(OAUTH + "\n")
    assert command.add("--credential-file", "credential.json").code == 0
    assert credential(command) == OAUTH
    changed = command("account", "set", "acc", "--credential-file", "-", given="plain-token\n")
    assert changed.code == 0, changed.err
    assert credential(command) == "plain-token"


def test_options_are_changed_without_the_credential(command: Command) -> None:
    assert command.add("--credential", "plain-token", "--option", "sourceId=7").code == 0
    changed = command("account", "set", "acc", "--option", "sourceId=null", "--option", "liveQuote=true", "--json")
    assert json.loads(changed.out)["options"] == listed(command)["options"] == {"liveQuote": True}
    (command.directory / "options.json").write_text('{"strictBookings": true}')
    assert command("account", "set", "acc", "--options-file", "options.json").code == 0
    assert listed(command)["options"] == {"strictBookings": True}
    assert credential(command) == "plain-token"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--option", "sourceId=0"), "sourceId"),
        (("--option", "fax=1"), "fax"),
        (("--option", "liveQuote"), "NAME=VALUE"),
        (("--id", "test~acc"), "without ~"),
        (("--id", "a" * 201), "1 to 200"),
        (("--options-file", "none.json"), "none.json"),
        (("--credential-file", "none"), "none"),
        (("--credential", "a", "--credential-file", "none"), "either"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_added(command: Command, arguments: tuple[str, ...], says: str) -> None:
    refused = command.add(*arguments)
    assert refused.code == 2
    assert says in refused.err
    assert "Traceback" not in refused.err
    assert command("account", "list", "--json").out == "[]\n"


def test_a_change_that_is_wrong_changes_nothing(command: Command) -> None:
    assert command.add("--option", "sourceId=7").code == 0
    for arguments, code, says in (
        (("acc", "--option", "sourceId=0"), 2, "sourceId"),
        (("acc",), 2, "--credential-file"),
        (("none", "--option", "sourceId=1"), 1, "none"),
    ):
        refused = command("account", "set", *arguments)
        assert refused.code == code
        assert says in refused.err
    assert listed(command)["options"] == {"sourceId": 7}


def test_the_duplicate_window_is_five_minutes_unless_it_is_said(command: Command) -> None:
    assert command.add("--credential", OAUTH).code == 0
    assert listed(command)["duplicateWindowSeconds"] == 300
    assert command("account", "set", "acc", "--duplicate-window", "0").code == 0
    assert listed(command)["duplicateWindowSeconds"] == 0
    assert command("account", "set", "acc", "--duplicate-window", "86401").code == 2
    assert command("account", "set", "acc", "--credential", OAUTH).code == 0
    assert listed(command)["duplicateWindowSeconds"] == 0


def test_checks_that_are_skipped_are_kept_with_the_account(command: Command) -> None:
    assert command.add("--skip-checks", "guest-name, past-arrival").code == 0
    assert listed(command)["skippedChecks"] == ["past-arrival", "guest-name"]
    assert command("account", "set", "acc", "--skip-checks", "all").code == 0
    assert listed(command)["skippedChecks"] == list(CHECKS)
    assert command("account", "set", "acc", "--option", "liveQuote=true").code == 0
    assert listed(command)["skippedChecks"] == list(CHECKS)
    assert command("account", "set", "acc", "--skip-checks", "none").code == 0
    assert listed(command)["skippedChecks"] == []


def test_certificates_are_stored_and_the_key_sealed(command: Command) -> None:
    try:
        authority = Authority(command.directory / "certificates")
    except Unavailable as reason:
        missing(reason)
    one, other = authority.issue("one"), authority.issue("other")
    files = ("--ca-file", str(authority.file), "--certificate-file", str(one.certificate), "--key-file", str(one.key))
    added = command.add(*files)
    assert added.code == 0, added.err
    account = stored(command)
    assert (account.authorities, account.client_certificate) == (
        authority.file.read_text(),
        one.certificate.read_text(),
    )
    assert account.client_key is not None
    assert "PRIVATE" not in account.client_key
    assert unsealer(command).open_text(account.client_key, of_client_key("acc")) == one.key.read_text()
    assert (listed(command)["ownAuthorities"], listed(command)["clientCertificate"]) == (True, True)

    for wrong in (
        files[2:4],
        (*files[2:4], "--key-file", str(other.key)),
        ("--ca-file", str(one.key)),
        (*files, "--system-tls"),
    ):
        refused = command("account", "set", "acc", *wrong)
        assert refused.code == 2, wrong
        assert "PRIVATE KEY--" not in refused.err
    assert stored(command) == account
    assert command("account", "set", "acc", "--system-tls").code == 0
    assert (listed(command)["ownAuthorities"], listed(command)["clientCertificate"]) == (False, False)


def test_an_account_has_no_plain_http_to_another_machine(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def added(kind: str, url: str) -> Ended:
        return command("account", "add", "--workspace", "acme", "--kind", kind, "--base-url", url)

    refused = added("generic", "http://pms.example/api")
    assert refused.code == 2
    assert "FORWARDER_ALLOW_PLAINTEXT_CARDS=true" in refused.err
    refused = added("hostaway", "http://pms.example/v1")
    assert refused.code == 2
    assert "FORWARDER_ALLOW_PLAINTEXT_PMS=true" in refused.err
    assert added("generic", "http://127.0.0.1:1/api").code == 0
    monkeypatch.setenv("FORWARDER_ALLOW_PLAINTEXT_PMS", "true")
    assert added("hostaway", "http://pms.example/v1").code == 0
    assert added("generic", "http://pms.example/api").code == 2
    monkeypatch.delenv("FORWARDER_ALLOW_PLAINTEXT_PMS")
    monkeypatch.setenv("FORWARDER_ALLOW_PLAINTEXT_CARDS", "true")
    assert added("generic", "http://pms.example/api").code == 0


def test_a_check_that_there_is_none_of_is_named_with_those_that_there_are(command: Command) -> None:
    ended = command.add("--skip-checks", "past-arrival,guests")
    assert ended.code == 2
    assert "no check 'guests'" in ended.err
    assert "guest-counts" in ended.err


def test_whatever_an_account_is_added_with_can_be_changed(command: Command) -> None:
    assert command.add("--credential", OAUTH).code == 0
    changed = command("account", "set", "acc", "--concurrency", "3", "--rate", "2.5", "--deadline", "60", "--json")
    assert changed.code == 0, changed.err
    assert {"concurrency": 3, "ratePerSecond": 2.5, "deadlineSeconds": 60}.items() <= json.loads(changed.out).items()
    moved = ("account", "set", "acc", "--base-url", "https://other.test/api/v3/")
    refused = command(*moved)
    assert (refused.code, "give it again" in refused.err) == (2, True)
    assert command(*moved, "--credential", OAUTH).code == 0
    assert command("account", "set", "acc", "--rate", "published").code == 0
    account = stored(command)
    assert (account.base_url, account.rate_per_second) == ("https://other.test/api/v3", None)
    assert unsealer(command).open_text(account.credential, of_credential(account)) == OAUTH
    for option, value in (("--rate", "nan"), ("--rate", "0"), ("--base-url", "ftp://pms"), ("--concurrency", "0")):
        assert command("account", "set", "acc", option, value).code == 2
    shown = json.loads(command("account", "show", "acc", "--json").out)
    assert (shown["concurrency"], shown["pending"], shown["nextTryAt"]) == (3, 0, None)
    assert command("account", "show", "none").code == 1


def test_a_kind_that_is_a_mapping_says_where_it_is(command: Command) -> None:
    adding = ("account", "add", "--workspace", "acme", "--id", "acc", "--credential", "plain", "--kind")
    unknown = command(*adding, "booking-sync")
    assert (unknown.code, "by --base-url" in unknown.err) == (2, True)
    assert command(*adding, "guesty").code == 0
    assert listed(command)["baseUrl"] == "https://open-api.guesty.com/v1"


def test_the_command_that_a_reason_names_exists_and_works(command: Command) -> None:
    command.add()
    assert stored(command).same_pms_before is None
    (named,) = re.findall("`forwarder (.*?)`", ANOTHER_PMS)
    done = command(*named.replace("ACCOUNT", "acc").split())
    assert done.code == 0, done.err
    assert stored(command).same_pms_before is not None


def test_what_workers_push_before_they_know_a_new_credential_went_to_the_same_pms_too(command: Command) -> None:
    """They know an account for some seconds after the change is committed, and a commit may wait minutes for a standby. Another
    PMS, later, is not the one of all that."""
    command.add()
    begun = datetime.now(UTC)
    assert command("account", "set", "acc", "--credential", "rotated", "--same-pms").code == 0
    vouched = stored(command).same_pms_before
    assert vouched is not None
    assert vouched >= begun + timedelta(minutes=30, seconds=CacheTimes().known)
    assert command("account", "set", "acc", "--rate", "5").code == 0
    assert stored(command).same_pms_before == vouched
    for moved in (("--base-url", "https://other.test/api"), ()):
        assert command("account", "set", "acc", *moved, "--credential", "theirs", "--same-pms").code == 0
        assert command("account", "set", "acc", *moved, "--credential", "others").code == 0
        assert stored(command).same_pms_before is None
