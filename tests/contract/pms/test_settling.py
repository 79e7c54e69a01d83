"""How long a PMS takes to show what it made is measured, and printed as the line of its mapping."""

import pytest

from forwarder_pms_kit.conformance import Site
from forwarder_pms_kit.runs import Settling, settling
from tests.support.simulator.server import running_simulator

NAME = "settling"


async def _no_time(_seconds: float) -> None:
    """Distances that nobody waits."""


async def test_a_pms_that_shows_at_once_what_it_made() -> None:
    async with running_simulator() as simulator:
        site = Site(simulator.base_url("hostaway", NAME), "a-credential", tidy=True)
        measured = await settling("hostaway", site, sleep=_no_time)
        assert measured is not None
        assert measured.shown_after is not None
        assert simulator.world.made == 1


async def test_one_that_does_not_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_simulator() as simulator:
        monkeypatch.setattr(simulator.world, "at", lambda _place: [])
        site = Site(simulator.base_url("hostaway", NAME), "a-credential")
        assert await settling("hostaway", site, sleep=_no_time) == Settling(None)


@pytest.mark.parametrize(
    ("shown_after", "line"),
    [
        (3.1, "settles: 97  # shown 3.1 s after it was made; 90 s for late commits"),
        (None, "# a reservation was not shown within 180 s: settles is not known"),
    ],
)
def test_the_line_for_the_mapping(shown_after: float | None, line: str) -> None:
    assert Settling(shown_after).lines == [line]
