import json
from pathlib import Path

import pytest

from bench.lean_http import Request
from bench.load import Load
from bench.measure import Measurement
from bench.page import NoPlace, write
from bench.pms import LeanPms
from bench.processes import StartUp
from bench.report import sheets
from bench.scenarios import SCENARIOS, named

PAGE = """# Speed

<!-- measured: begin. `make bench ARGS='--all --write'` writes what is between these two lines. -->
old
<!-- measured: end -->

By hand.
"""


def measured(flow: str, rate: float, us: float) -> Measurement:
    return Measurement(
        "pms-0", flow, {"202": 10}, rate * 2, 1.0, 2.0, 3.0, {"ingress": us, "worker": us}, 0.0, end_to_end_rate=rate
    )


def test_a_run_writes_its_own_part_of_the_page_and_leaves_the_rest(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(PAGE)
    found = sheets([measured("forwarder", 30, 10)], [])

    write(["bench"], ["A ceiling."], found, page)
    once = page.read_text()
    write(["bench"], ["A ceiling."], found, page)

    assert once == page.read_text()
    assert once.startswith("# Speed\n\n<!-- measured: begin")
    assert once.endswith("<!-- measured: end -->\n\nBy hand.\n")
    assert "A ceiling." in once
    assert "old" not in once


def test_a_page_without_a_place_for_it_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("By hand.\n")

    with pytest.raises(NoPlace):
        write(["bench"], [], [], page)

    assert page.read_text() == "By hand.\n"


def test_each_figure_is_a_median_with_its_spread_and_a_ratio_to_the_baseline() -> None:
    rounds = [measured("forwarder", rate, 10) for rate in (20, 30, 90)] + [measured("baseline", 10, 40)]

    speed, cost, start = sheets(rounds, [StartUp("worker", 2, 1.5, 1.25, 100.0)])

    assert [row[4:6] for row in speed.rows] == [["30 (20-90)", "3.00"], ["10", ""]]
    assert [row[1:3] for row in cost.rows] == [["20 (20-20)", "0.25"], ["80", ""]]
    assert start.rows == [["worker, 2 processes", "1.50", "1.25", "100"]]


def test_the_load_is_sent_in_bulks_whose_last_may_be_smaller() -> None:
    load = Load("run", 5, b"POST / HTTP/1.1\r\ncontent-length: ", bulk=2)
    orders = [load.next_order() for _ in range(4)]

    assert [order.submissions if order else None for order in orders] == [2, 2, 1, None]
    assert orders[0] is not None
    items = json.loads(orders[0].request.partition(b"\r\n\r\n")[2])
    assert [item["reservation"]["transactionId"] for item in items] == ["run-00000000", "run-00000001"]


def test_the_load_is_spread_evenly_over_time_where_it_has_a_rate() -> None:
    load = Load("run", 3, b"", rate=50, began=100.0)

    assert [order.due for _ in range(3) if (order := load.next_order())] == pytest.approx([100.0, 100.02, 100.04])


def test_the_lean_pms_refuses_its_share_and_makes_what_is_sent_again() -> None:
    pms = LeanPms(errors=0.25)
    statuses = []
    for number in range(400):
        request = Request("POST", "/generic/reservations", headers={b"idempotency-key": b"%d" % number})
        request.body = b'{"reference":"%d"}' % number
        while (status := pms.answer(request)[0]) == 503:
            statuses.append(status)

    assert pms.made == 400
    assert 90 < len(statuses) < 190


def test_scenarios_have_names_of_their_own_and_the_short_set_is_some_of_them() -> None:
    assert len({each.name for each in SCENARIOS}) == len(SCENARIOS)
    assert [each.name for each in named(["low", "accept"], every=False)] == ["low", "accept"]
    assert set(named(None, every=False)) < set(named(None, every=True)) == set(SCENARIOS)
