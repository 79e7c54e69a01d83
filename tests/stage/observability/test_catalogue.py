"""What a process shows at /metrics: its role's numbers and no others, one answer for all processes of a port, and well-formed."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import Counter, Gauge, Histogram, generate_latest

from forwarder.observability import metrics
from forwarder.observability.metrics import SnapshotGauge, registry, tell_build

OURS = {
    described.name
    for metric in vars(metrics).values()
    if isinstance(metric, Counter | Gauge | Histogram | SnapshotGauge)
    for described in metric.describe()
}


def shown(role: str | None) -> set[str]:
    return {
        metric.name for metric in registry(role).collect() if metric.name.startswith("forwarder_") and metric.samples
    }


def test_a_role_shows_nothing_of_what_others_count() -> None:
    tell_build("worker", "r1")
    assert {"forwarder_held_reservations", "forwarder_build_info"} <= shown("worker")
    assert not {"forwarder_waiting_requests", "forwarder_webhooks_queued"} & shown("worker")
    assert "forwarder_held_reservations" not in shown("ingress") | shown("query") | shown("notifier") | shown(
        "simulator"
    )
    every = shown("worker") | shown("ingress") | shown("query") | shown("notifier")
    assert every == shown("up") <= OURS


@pytest.fixture
def everything_known() -> Iterator[None]:
    """Each snapshot has a value."""
    for gauge in SnapshotGauge.every.values():
        gauge.replace({("x",) * len(gauge.labels): 1.0})
    yield
    for gauge in SnapshotGauge.every.values():
        gauge.replace({})


def test_a_number_that_begins_at_0_is_some_roles() -> None:
    """So that no other role shows it, as if all were well there."""
    code = (
        "from forwarder.observability.metrics import registry\n"
        "print(*(metric.name for metric in registry().collect() if metric.samples))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    of_roles = {
        described.name for each in metrics.FROM_0.values() for metric in each for described in metric.describe()
    }
    of_every_role = {"forwarder_http_connections", "forwarder_log_lines_dropped"}
    of_roles.discard("forwarder_bad_tokens")  # has labels, which every process that knows keys sets
    assert {name for name in told.stdout.split() if name.startswith("forwarder_")} == of_roles | of_every_role


def test_a_snapshot_shows_what_it_was_given_last_and_nothing_while_there_is_nothing() -> None:
    gauge = metrics.LAG_MESSAGES
    gauge.replace({("worker",): 4, ("notifier",): 1})
    gauge.replace({("worker",): 7})
    assert registry("housekeeping").get_sample_value("forwarder_lag_messages", {"group": "worker"}) == 7
    assert registry("housekeeping").get_sample_value("forwarder_lag_messages", {"group": "notifier"}) is None
    gauge.replace({})
    assert "forwarder_lag_messages" not in shown("housekeeping")


_ONE_OF_SEVERAL = """
import sys
from forwarder.observability import metrics
from forwarder.observability.metrics import registry
metrics.PENDING.replace({("acc", "active"): float(sys.argv[1])})
print("told", flush=True)
sys.stdin.readline()
if sys.argv[1] == "3":
    from prometheus_client import generate_latest
    print(generate_latest(registry("housekeeping")).decode(), flush=True)
"""


async def test_several_processes_of_a_port_are_told_of_as_one(tmp_path: Path) -> None:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    told = []
    for number in ("1", "3"):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _ONE_OF_SEVERAL,
            number,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"told\n"
        told.append(process)
    text = (await told[1].communicate(b"\n"))[0].decode()
    await told[0].communicate(b"\n")
    assert 'forwarder_pending_reservations{account="acc",state="active"} 4.0' in text
    for name in ("process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds"):
        assert f"\n{name} " in text


@pytest.mark.usefixtures("everything_known")
def test_prometheus_own_linter_finds_nothing_wrong() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (on Debian: apt-get install prometheus)")
    text = generate_latest(registry("up"))
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr.decode()) == (0, "")
