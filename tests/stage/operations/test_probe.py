"""Probing an account: each step is told, up to the first that fails, with what would mend it; and nothing is made in the PMS."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from forwarder.operate.tenants.accounts import Prober, ProbeStep
from forwarder.pms.accounts import connection_of
from forwarder.pms.directory import open_directory
from forwarder.process.clock import SystemClock
from forwarder.tenancy.port import Account, Unsealer
from forwarder.tenancy.sealing import with_credential
from tests.support.memory.audit import memory_audit
from tests.support.sealing import keyring_of
from tests.support.simulator.server import running_simulator
from tests.support.worker.works import account

SECRET = "a secret of a test's own"
UNSEALER = keyring_of(SECRET)


def at(base_url: str) -> Account:
    return with_credential(replace(account(), base_url=base_url), "credential", keyring_of(SECRET))


@asynccontextmanager
async def prober(unsealer: Unsealer | None = UNSEALER) -> AsyncIterator[Prober]:
    clock = SystemClock()
    async with open_directory(clock) as pms:
        yield Prober(pms, unsealer, clock, memory_audit(clock))


def ended(steps: list[ProbeStep] | tuple[ProbeStep, ...]) -> list[tuple[str, str]]:
    return [(step.name, step.ended) for step in steps]


async def test_a_pms_that_lets_us_in_is_asked_for_what_it_cannot_have() -> None:
    async with running_simulator() as site, prober() as probing:
        steps = await probing.probe(at(site.base_url("generic")), "1001")
        assert ended([*steps]) == [("dns", "ok"), ("connection", "ok"), ("look-up", "ok")], steps
        assert site.world.made == 0
        site.go_wrong("down")
        failed = await probing.probe(at(site.base_url("generic")), "1001")
    assert ended([*failed])[-1] == ("look-up", "failed")
    assert "pms_unavailable" in failed[-1].says
    assert failed[-1].mend


async def test_the_first_step_that_fails_is_the_last() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        async with prober() as probing:
            steps = await probing.probe(at(f"http://127.0.0.1:{port}"), "1")
            unnamed = await probing.probe(at("https://no-such-host.invalid"), "1")
    assert ended([*steps]) == [("dns", "ok"), ("connection", "failed")]
    assert ended([*unnamed]) == [("dns", "failed")]
    assert "--base-url" in (unnamed[0].mend or "")


async def test_without_the_secret_a_probe_fails_and_says_what_to_set() -> None:
    async with running_simulator() as site, prober(unsealer=None) as probing:
        steps = await probing.probe(at(site.base_url("generic")), "1001")
    assert ended([*steps])[-1] == ("look-up", "failed")
    assert "FORWARDER_SECRET_KEY" in steps[-1].says
    assert "FORWARDER_SECRET_KEY_FILE" in (steps[-1].mend or "")


def test_a_connection_has_the_credential_in_the_clear() -> None:
    assert connection_of(at("https://pms.test"), UNSEALER).credential == "credential"
