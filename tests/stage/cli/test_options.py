"""Moments as an operator writes them."""

from datetime import UTC, datetime, timedelta

import pytest

from forwarder.operate.command import moment
from forwarder.operate.output import WrongUsage
from tests.support.cases import for_each
from tests.support.worker.works import NOW


@for_each(
    ("text", "meant"),
    [
        ("90s", NOW - timedelta(seconds=90)),
        ("30m", NOW - timedelta(minutes=30)),
        ("1.5h", NOW - timedelta(minutes=90)),
        ("7d", NOW - timedelta(days=7)),
        ("2w", NOW - timedelta(days=14)),
        ("2026-12-31", datetime(2026, 12, 31, tzinfo=UTC)),
        ("2026-12-31T10:00:00Z", datetime(2026, 12, 31, 10, tzinfo=UTC)),
        (" 2026-12-31T10:00:00+02:00 ", datetime(2026, 12, 31, 8, tzinfo=UTC)),
        ("2026-12-31 10:00", datetime(2026, 12, 31, 10, tzinfo=UTC)),
    ],
)
def test_a_moment_is_iso_8601_or_an_age(text: str, meant: datetime) -> None:
    assert moment(text, "--since", NOW) == meant


@for_each("text", ["", "yesterday", "7", "-7d", "7 d", "7y", "99999999999d", "2026-13-01", "0001-01-01T00:00+23:59"])
def test_what_is_no_moment_is_wrong_usage(text: str) -> None:
    with pytest.raises(WrongUsage, match=r"--since must be a time.*7d"):
        moment(text, "--since", NOW)
