"""Every timestamp is written in one form: ISO 8601 in UTC, with milliseconds, cut off and not rounded."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from forwarder.process.clock import iso
from tests.support.cases import for_each

NOON = datetime(2027, 3, 1, 12, 0, 5, tzinfo=UTC)


@for_each(
    ("microseconds", "written"),
    [(0, "000"), (1, "000"), (999, "000"), (1_000, "001"), (120_000, "120"), (678_901, "678"), (999_999, "999")],
)
def test_a_fraction_of_a_second_is_cut_off_after_the_millisecond(microseconds: int, written: str) -> None:
    assert iso(NOON.replace(microsecond=microseconds)) == f"2027-03-01T12:00:05.{written}Z"


@pytest.mark.parametrize("microseconds", [0, 250_000])
def test_it_is_written_in_utc_wherever_it_was_told(microseconds: int) -> None:
    moment = NOON.replace(microsecond=microseconds)
    for hours in (-9.5, 0, 2):
        assert iso(moment.astimezone(timezone(timedelta(hours=hours)))) == iso(moment)


@pytest.mark.parametrize("year", [1, 999, 9999])
def test_a_year_has_four_digits(year: int) -> None:
    assert iso(NOON.replace(year=year, microsecond=5_000)) == f"{year:04}-03-01T12:00:05.005Z"
