"""What the operator's commands refuse before they open anything: exit code 2, and one line that says what would be right."""

import sys

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
