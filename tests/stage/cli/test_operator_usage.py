"""What the operator's commands refuse before they open anything: exit code 2, and one line that says what would be right."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from forwarder.cli.program import run


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("guests erase", "--email"),
        ("guests erase --email maria@example.com --phone 600100200", "one of"),
        ("guests erase --email maria", "full address"),
        ("guests erase --phone 12", "six digits"),
        ("retention set demo", "--dead-letters"),
        ("retention set demo --reservations 1.5", "whole days"),
        ("audit list --since tomorrow", "2h"),
        ("dead-letters replay", "--all-open"),
        ("dead-letters replay rsv_1.1 --all-open", "--all-open"),
        ("dead-letters replay rsv_1.1 --account acc", "ids"),
        ("dead-letters replay --account acc --all-open", "filters"),
        ("dead-letters replay --class undecodable", "only if their ids are given"),
        ("dead-letters replay --class lost", "unreachable"),
        ("dead-letters replay --all-open --rate 0", "--rate"),
        ("dead-letters replay --all-open --rate nan", "--rate"),
        ("dead-letters replay --all-open --rate inf", "--rate"),
        ("dead-letters replay --since tomorrow", "2h"),
        ("dead-letters list --since 1h --until 2h", "before --until"),
        ("dead-letters list --class lost", "undecodable"),
        ("dead-letters list --limit 0", "limit"),
        ("dead-letters show", "ID"),
        ("account add --workspace w --kind generic --deadline 300000000000", "--deadline"),
        ("account add --workspace w --kind generic --concurrency 10000000000", "--concurrency"),
        ("account add --workspace w --kind generic --id=", "--id"),
        ("account add --workspace w --kind generic --id -x", "hyphen"),
        ("account add --workspace w --kind generic --id \u00e9", "ASCII"),
        ("account add --workspace w --kind generic --base-url http://localhost --credential-file /dev/null", "empty"),
        ("account set a --credential-file /dev/null", "empty"),
        ("account set a --credential-file /no/such", "/no/such cannot be read: No such file or directory"),
        ("audit list --before 9223372036854775808", "--before"),
        ("submissions cancel --account= --status pending", "--account must not be empty"),
        ("submissions list --newer-than 1h --older-than 2h", "before --older-than"),
        ("submissions settle rsv_1", "--not-made"),
        ("submissions settle rsv_1 --not-made --confirmed 7", "--rejected"),
        ("submissions settle rsv_1 --confirmed 7 --rejected no", "--not-made"),
        ("submissions settle rsv_1 --confirmed=", "--confirmed"),
        ("submissions settle rsv_1 --rejected=", "--rejected"),
        ("submissions settle --not-made", "REQUEST_ID"),
        ("results tail --from tomorrow", "beginning"),
        ("results tail --from end --no-follow", "--no-follow"),
        ("results tail --type lost", "reservation.cancelled.v1"),
        ("results tail -n 0", "--count"),
        ("webhook add https://hooks.example/in", "--workspace"),
        ("webhook set whk_1", "--url"),
        ("webhook set whk_1 --type all --type reservation.confirmed.v1", "alone"),
        ("webhook rotate whk_1 --overlap 604801", "--overlap"),
        ("webhook deliveries whk_1 --status lost", "DELIVERED"),
        ("webhook delivery whk_1 x", "DELIVERY"),
        ("webhook recover whk_1 --since tomorrow", "2h"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(
    arguments: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["forwarder", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        run()
    said = capsys.readouterr()
    assert (ended.value.code, says in said.err, said.out) == (2, True, "")


UNKNOWN = [
    "submissions list --account nope",
    "submissions list --workspace nope --json",
    "submissions cancel --account nope --yes",
    "submissions retry --workspace nope --yes",
    "dead-letters list --account nope",
    "dead-letters replay --account nope --yes",
    "guests erase --email maria@example.com --workspace nope",
    "purge --before 2020-01-01 --workspace nope",
    "account list --workspace nope",
    "key list --workspace nope",
    "webhook list --workspace nope",
    "audit list --workspace nope",
]


def command(arguments: str, monkeypatch: pytest.MonkeyPatch) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["forwarder", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        run()
    return ended.value.code


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An embedded one with a workspace and an account."""
    monkeypatch.setenv("FORWARDER_DATA_DIR", str(tmp_path / "data"))
    for each in (
        "workspace add w",
        "topics create",
        "account add --workspace w --kind generic --base-url http://localhost --id a",
    ):
        assert command(each, monkeypatch) == 0
    capsys.readouterr()


@pytest.mark.usefixtures("deployment")
def test_a_filter_with_an_unknown_name_is_not_one_that_matches_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in UNKNOWN:
        code, said = command(arguments, monkeypatch), capsys.readouterr()
        assert (code, said.out, "There is no " in said.err, "'nope'" in said.err) == (1, "", True, True), arguments
    for account in ("a", "test~a"):
        assert command(f"submissions list --account {account} --json", monkeypatch) == 0
        assert json.loads(capsys.readouterr().out) == []
    assert command(f"submissions list --limit {10**25}", monkeypatch) == 0


@pytest.mark.usefixtures("deployment")
def test_a_list_that_was_cut_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("webhook add http://127.0.0.1:9/in --workspace w --json", monkeypatch) == 0
    webhook = json.loads(capsys.readouterr().out)["id"]
    for _ in range(2):
        assert command(f"webhook test {webhook}", monkeypatch) == 0
    capsys.readouterr()
    assert command(f"webhook deliveries {webhook} --limit 1", monkeypatch) == 0
    said = capsys.readouterr()
    assert (len(said.out.splitlines()), "--limit shows more" in said.err) == (2, True)
    assert command(f"webhook deliveries {webhook} --limit 2", monkeypatch) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("deployment")
@pytest.mark.parametrize("arguments", ["key add --workspace w", "status"])
def test_output_that_cannot_be_written_is_a_sentence(arguments: str) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "forwarder", *arguments.split()], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert ended.returncode == 1
    assert ended.stderr.decode().count("\n") == 1, ended.stderr
    assert b"output cannot be written: No space left on device" in ended.stderr
