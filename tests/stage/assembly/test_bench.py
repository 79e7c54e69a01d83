import json
from pathlib import Path

import pytest

from bench.gate import Gate
from bench.growth import Reading, between, faults
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


def test_senders_are_held_back_while_much_is_not_made() -> None:
    gate, resumed = Gate("", 10), []

    assert not gate.holds(10, lambda: resumed.append(1))
    assert gate.holds(11, lambda: resumed.append(2))
    assert resumed == []
    gate.made(5)
    assert resumed == [2]
    assert not gate.holds(15, lambda: resumed.append(3))
    assert gate.holds(16, lambda: resumed.append(4))
    gate.made(16)
    assert resumed == [2, 4]


def test_growth_is_told_by_what_each_part_took_of_its_own() -> None:
    readings = [
        Reading(0, 100.0, {"worker": 0.0, "machine": 0.0}, {"worker": 90.0}),
        Reading(1_000, 102.0, {"worker": 0.3, "machine": 2.0}, {"worker": 95.0}),
        Reading(3_000, 104.0, {"worker": 0.5, "machine": 6.0}, {"worker": 97.0}),
    ]

    first, second = between(*readings[:2]), between(*readings[1:])

    assert (first.made, first.rate, first.busy) == (1_000, 500.0, 1.0)
    assert (second.made, second.rate, second.busy) == (3_000, 1_000.0, 2.0)
    assert first.cpu_us == pytest.approx({"worker": 300.0})
    assert second.cpu_us == pytest.approx({"worker": 100.0})
    assert second.memory == {"worker": 97.0}


def test_a_run_that_grew_is_wrong_where_one_is_lacking_or_was_made_twice() -> None:
    right = {"accepted": 10, "made": 10, "twice": 0, "confirmed": 10, "shown": 10}

    assert faults(right, 10) == []
    assert faults(right | {"made": 11, "twice": 1}, 10) == ["made: 11, not 10", "twice: 1, not 0"]
    assert faults(right | {"shown": 9}, 10) == ["shown: 9, not 10"]


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
