"""A real Prometheus on a running forwarder: it has all that rules and dashboard ask for, and each incident fires its alert.
`FORWARDER_TEST_INCIDENTS=FILE` keeps how many seconds each took to be seen, and to be gone once it was repaired."""

import asyncio
import json
import os
import re
import shutil
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest
from aiokafka import AIOKafkaProducer

from forwarder.assembly.backend import open_backend
from forwarder.operate.tenants.accounts import Accounts
from forwarder.topics.port import read_to_end
from forwarder_pms_kit.simulators import SITES
from tests.fault.outages.prometheus import RULES, Prometheus, alerts_of, quick_rules
from tests.support.backends import missing
from tests.support.deployment.deployment import Deployment, Typed, booking, deploy
from tests.support.deployment.site import Site, settings_of, site_settings
from tests.support.network.receiver import receiver
from tools.servers.certificates import Authority
from tools.servers.kafka.process import KafkaCluster
from tools.servers.ladder import Unavailable
from tools.servers.postgres.process import PostgresServer
from tools.servers.real_servers import RealServers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed: Debian has it"),
]

_PATIENCE_SECONDS: Final = 240.0
_ROLES: Final = ("ingress", "worker", "query", "notifier", "housekeeping")
_ASKED: Final = re.compile(r"\b((?:forwarder|process)_\w+)")


@dataclass
class Night:
    """A deployment with a Prometheus and an operator."""

    running: Deployment
    prometheus: Prometheus
    kafka: KafkaCluster
    postgres: PostgresServer
    number: int = 0
    seen: list[dict[str, Any]] = field(default_factory=list)

    @asynccontextmanager
    async def load(self, account: str = "acme", *, every: float = 0.15) -> AsyncIterator[None]:
        """Submissions to the account, for as long as the block lasts; whatever becomes of them."""

        async def submit() -> None:
            while True:
                self.number += 1
                await self.running.submit(account, booking(self.number % 5_000))
                await asyncio.sleep(every)  # as a caller does

        task = asyncio.create_task(submit())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def faults(self, account: str, **order: Any) -> None:
        url = f"{self.running.url('simulate')}/{account}/faults"
        (await self.running.client.put(url, json=order)).raise_for_status()

    async def well(self, account: str) -> None:
        (await self.running.client.delete(f"{self.running.url('simulate')}/{account}/faults")).raise_for_status()

    async def typed(self, *command: str) -> str:
        """What a command says, well or not."""
        said = await Typed(self.running, *command).done()
        return said.out + said.err

    async def incident(
        self,
        name: str,
        alert: tuple[str, dict[str, str]],
        cause: tuple[Sequence[str], str],
        repair: Callable[[], Awaitable[object]],
        *,
        load: str | None = "acme",
        status: str = "",
    ) -> None:
        """What was just begun fires the alert, while submissions to `load` come; the command names its cause, and
        `forwarder status` says what `status` matches; once it is repaired the alert is quiet again."""
        command, said = cause
        if tuple(command) == ("status",):
            status = rf"^! .*{said}"
        began = time.monotonic()
        async with asyncio.timeout(_PATIENCE_SECONDS), self.load(load) if load else nullcontext():
            fired = await self.prometheus.fires(alert[0], **alert[1])
            noticed = time.monotonic() - began
            while said not in (told := await self.typed(*command)):
                pass
            found = time.monotonic() - began - noticed
            while not (
                lines := [line for line in (await self.typed("status")).splitlines() if re.search(status, line)]
            ):
                pass
        began = time.monotonic()
        await repair()
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await self.prometheus.quiet(alert[0], **alert[1])
        self.seen.append(
            {
                "incident": name,
                "alert": alert[0],
                "summary": fired["annotations"]["summary"],
                "noticed": round(noticed, 1),
                "command": " ".join(command),
                "found": round(found, 1),
                "status": lines[0].removeprefix("! ") if status else "",
                "says": next((line for line in told.splitlines() if said in line), ""),
                "gone": round(time.monotonic() - began, 1),
            }
        )

    async def well_again(self, account: str) -> None:
        """Its PMS is well; what waits for its next try is tried now."""
        await self.well(account)
        await self.typed("submissions", "retry", "--account", account, "--yes")


@pytest.fixture
async def night(tmp_path: Path, real_servers: RealServers) -> AsyncIterator[Night]:
    async with AsyncExitStack() as stack:
        try:
            kafka, postgres = KafkaCluster(real_servers.reaper), PostgresServer(real_servers.reaper)
        except Unavailable as reason:
            missing(reason)
        stack.callback(kafka.kill)
        stack.callback(postgres.stop)
        await asyncio.gather(asyncio.to_thread(kafka.start), asyncio.to_thread(postgres.start))
        more = {
            "FORWARDER_PUSH_TIMEOUT_SECONDS": "2",
            "FORWARDER_WEBHOOK_TIMEOUT_SECONDS": "2",
            "FORWARDER_WEBHOOK_PRIVATE_ADDRESSES": "true",
            "FORWARDER_ALLOW_PLAINTEXT_PMS": "true",
        }
        settings = site_settings("distributed", tmp_path, kafka.bootstrap_servers, postgres.url)
        site = Site("distributed", tmp_path, {**settings, **more}, real_servers.reaper)
        running = await stack.enter_async_context(deploy(site))
        for role in ("notifier", "housekeeping"):
            running.add(role)
        await running.start()
        for account in ("acme", "other"):
            await running.add_account(account)
        targets = [running.url(role).removeprefix("http://") for role in _ROLES]
        prometheus = Prometheus(tmp_path / "prometheus", targets, real_servers.reaper)
        stack.push_async_callback(prometheus.client.aclose)
        stack.callback(prometheus.process.stop)
        await asyncio.to_thread(prometheus.process.start)
        yield Night(running, prometheus, kafka, postgres)


async def test_prometheus_has_what_is_asked_for_and_each_incident_fires_its_alert(night: Night) -> None:
    await _all_targets_are_up(night)
    try:
        for part in _INCIDENTS:
            await part(night)
    finally:
        if "FORWARDER_TEST_INCIDENTS" in os.environ:
            Path(os.environ["FORWARDER_TEST_INCIDENTS"]).write_text(json.dumps(night.seen, indent=1))
    await _all_series_are_there(night)


async def _all_targets_are_up(night: Night) -> None:
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while len(await night.prometheus.up()) < len(_ROLES):
            await asyncio.sleep(0.2)
        while not await night.prometheus.value("forwarder_standing_read_timestamp_seconds"):
            await asyncio.sleep(0.2)


async def _all_series_are_there(night: Night) -> None:
    """Those that rules and dashboard name, after a night in which everything happened that they are about."""
    expressions = [rule["expr"] for rule in alerts_of(quick_rules())]
    dashboard = json.loads((RULES.parent / "grafana-dashboard.json").read_text())
    expressions += [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    asked = {name for expression in expressions for name in _ASKED.findall(expression)}
    assert asked - await night.prometheus.names() <= _RARE


_RARE: Final = {
    "forwarder_webhook_endpoints_disabled_total",
    "forwarder_cards_gone_total",
    "forwarder_contained_faults_total",
    "forwarder_doubles_total",
    "forwarder_bad_tokens_total",
    "forwarder_hold_offs_total",
    "forwarder_window_cuts_total",
}
"""Counters that begin with what did not happen in this night."""


# --- the incidents ----------------------------------------------------------------------------------------------------


async def _pms_down(night: Night) -> None:
    await night.faults("acme", mode="down")
    await night.incident(
        "the PMS is down",
        ("ForwarderBreakerOpen", {"account": "acme", "reason": "pms_unavailable"}),
        (("account", "probe", "acme"), "pms_unavailable"),
        lambda: night.well_again("acme"),
        status=r"^! acme: its PMS fails \(pms_unavailable\), breaker open, \d+ wait, \d+ of them after pms_\w+, next try",
    )


async def _pms_hangs(night: Night) -> None:
    await night.faults("acme", mode="hang")
    await night.incident(
        "the PMS hangs",
        ("ForwarderOldestPending", {"account": "acme"}),
        (("account", "probe", "acme"), "look-up"),
        lambda: night.well_again("acme"),
        status=r"^! acme: its PMS fails \(\w*timed_out\w*\), breaker open, .* after \w*timed_out",
    )


async def _pms_slow(night: Night) -> None:
    await night.faults("other", delay_ms=1_500)
    await night.incident(
        "the PMS is slow",
        ("ForwarderPmsSlow", {"kind": "generic"}),
        (("account", "probe", "other"), "look-up"),
        lambda: night.well("other"),
        load="other",
    )


async def _pms_revokes_the_credential(night: Night) -> None:
    async def set_credential(credential: str) -> None:
        async with open_backend(settings_of(night.running.site)) as backend:
            accounts = Accounts(
                backend.tenancy, backend.sealer, plaintext=settings_of(night.running.site).environment.plaintext_to_pms
            )
            await accounts.change("acme", credential=credential, options={}, all_options=False)

    await set_credential("wrong")
    await night.incident(
        "the credential was revoked",
        ("ForwarderBreakerOpen", {"account": "acme", "reason": "pms_unauthorized"}),
        (("account", "probe", "acme"), "pms_unauthorized"),
        lambda: night.typed("account", "set", "acme", "--credential", "a new one"),
        status=r"^! acme: its PMS fails \(pms_unauthorized\), .*; its PMS refuses the credential$",
    )


async def _pms_is_not_who_it_was(night: Night) -> None:
    """Its certificate is signed by an authority that nobody told us of."""
    authority = Authority(night.running.site.directory / "authority")
    issued = authority.issue("pms", "IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    host, port = night.running.url("simulate").removeprefix("http://").split(":")

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, before = await asyncio.open_connection(host, port)
        await asyncio.gather(_pump(reader, before), _pump(behind, writer), return_exceptions=True)

    server = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context)
    async with server:
        base_url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/acme/generic"
        await night.typed("account", "set", "acme", "--base-url", base_url, "--credential", "secret")
        await night.incident(
            "the PMS's certificate is not trusted",
            ("ForwarderBreakerOpen", {"account": "acme", "reason": "pms_not_trusted"}),
            (("account", "probe", "acme"), "--ca-file"),
            lambda: night.typed("account", "set", "acme", "--ca-file", str(authority.file)),
            status=r"^! acme: its PMS fails \(pms_not_trusted\), ",
        )
    plain = f"{night.running.url('simulate')}/acme/generic"
    await night.typed("account", "set", "acme", "--base-url", plain, "--credential", "secret", "--system-tls")


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


async def _pms_answers_nonsense(night: Night) -> None:
    """A PMS that cannot be asked afterwards: whether it booked is for an operator to find out."""
    site, running = SITES["cloudbeds"], night.running
    await running.command(
        *("account", "add", "--workspace", "demo", "--kind", "cloudbeds", "--id", "blind", "--credential", "secret"),
        *("--base-url", f"{running.url('simulate')}/blind/{site.path}"),
    )
    await night.faults("blind", mode="garbage_after_booking")
    accepted = await running.submit("blind", booking(1))
    assert accepted.status_code == 202, accepted.text
    request_id = accepted.json()["data"]["requestId"]

    async def settle() -> None:
        await night.well("blind")
        await night.typed("submissions", "settle", request_id, "--confirmed", "as the PMS shows it")

    await night.incident(
        "the PMS answers nonsense",
        ("ForwarderInDoubt", {"account": "blind"}),
        (("submissions", "list", "--status", "in_doubt"), request_id),
        settle,
        status=r"^! blind: 1 in doubt, the oldest for ",
    )


async def _dead_letters_come(night: Night) -> None:
    """A PMS is down for longer than an account's submissions are tried."""
    await night.typed("account", "set", "other", "--deadline", "2")
    await night.faults("other", mode="down")

    async def replay() -> None:
        await night.well("other")
        await night.typed("account", "set", "other", "--deadline", "86400")
        await night.typed("dead-letters", "replay", "--class", "unavailable", "--yes")

    await night.incident(
        "dead letters come",
        ("ForwarderDeadLetters", {"class": "unavailable"}),
        (("dead-letters", "list", "--class", "unavailable"), "pms_unavailable"),
        replay,
        load="other",
        status=r"^! \d+ submissions FAILED, unavailable$",
    )


async def _a_message_that_nobody_can_read(night: Night) -> None:
    settings = settings_of(night.running.site)
    async with AIOKafkaProducer(bootstrap_servers=night.kafka.bootstrap_servers) as producer:
        await producer.send_and_wait(settings.topics.requests, b"no JSON", b"acme:1")
    await night.incident(
        "a message that nobody can read",
        ("ForwarderUnreadableMessages", {}),
        (("dead-letters", "list", "--class", "undecodable"), "undecodable"),
        lambda: night.typed("dead-letters", "acknowledge", "undecodable"),
        status=r"^! 1 message on the requests topic could not be read, set aside, the last ",
    )


async def _a_message_is_forged(night: Night) -> None:
    """A copy of a message of ours with another address, and its signature as it was."""
    settings = settings_of(night.running.site)
    async with (
        open_backend(settings) as backend,
        AIOKafkaProducer(bootstrap_servers=night.kafka.bootstrap_servers) as producer,
    ):
        messages = [each.message async for some in read_to_end(backend.log, settings.topics.requests) for each in some]
        genuine = next(each for each in messages if each.headers)
        await producer.send_and_wait(
            settings.topics.requests, genuine.value + b" ", genuine.key, headers=[*genuine.headers]
        )
    await night.incident(
        "a message is forged",
        ("ForwarderForgedMessages", {}),
        (("dead-letters", "list", "--class", "forged"), "forged"),
        lambda: night.typed("dead-letters", "acknowledge", "forged"),
        status=r"^! 1 message on the requests topic not signed by this deployment, set aside, the last ",
    )


async def _a_webhook_fails(night: Night) -> None:
    async with receiver(status=500) as failing:
        running = night.running
        hook = await running.command("webhook", "add", failing.url, "--workspace", "demo")
        await night.incident(
            "a webhook's endpoint fails",
            ("ForwarderWebhookBehind", {"endpoint": hook["id"]}),
            (("webhook", "deliveries", hook["id"], "--tried"), "\t500"),
            lambda: night.typed("webhook", "disable", hook["id"]),
            status=rf"^! webhook {hook['id']}: \d+ deliver(y|ies) waiting, the first due for ",
        )


async def _worker_gone(night: Night) -> None:
    night.running.processes["worker"].kill()
    await night.incident(
        "the worker is gone",
        ("ForwarderNoWorker", {"role": "worker"}),
        (("status",), "no worker runs"),
        night.running.start,
    )


async def _lag_grows(night: Night) -> None:
    """Another session holds the table, as a maintenance command may: nothing is taken in."""
    url = night.running.site.settings["FORWARDER_DATABASE_URL"].replace("+asyncpg", "")
    session = await asyncpg.connect(url)
    try:
        held = session.transaction()
        await held.start()
        await session.execute("LOCK TABLE reservations IN EXCLUSIVE MODE")
        await night.incident(
            "the lag grows",
            ("ForwarderLag", {"group": "worker"}),
            (("status",), "forwarder-worker is "),
            held.rollback,
        )
    finally:
        await session.close()


async def _store_down(night: Night) -> None:
    await asyncio.to_thread(night.postgres.kill)
    await night.incident(
        "the store is down",
        ("ForwarderStoreAway", {"check": "store"}),
        (("status",), "the store is away"),
        lambda: asyncio.to_thread(night.postgres.start),
    )


async def _log_down(night: Night) -> None:
    await asyncio.to_thread(night.kafka.kill)
    await night.incident(
        "Kafka is down",
        ("ForwarderLogAway", {"check": "log"}),
        (("status",), "the log is away"),
        lambda: asyncio.to_thread(night.kafka.start),
    )


async def _ingress_gone(night: Night) -> None:
    night.running.processes["ingress"].kill()
    await night.incident(
        "the ingress is gone",
        ("ForwarderNoIngress", {"role": "ingress"}),
        (("status",), "no ingress runs"),
        night.running.start,
    )


async def _store_restored(night: Night) -> None:
    """The newest rows are gone, as after a restore to a minute ago."""
    accepted = [await night.running.submit("other", booking(6_000 + each)) for each in range(5)]
    for each in accepted:
        await night.running.settled("other", each.json()["data"]["requestId"])
    await asyncio.to_thread(night.running.processes["worker"].stop)
    session = await asyncpg.connect(night.running.site.settings["FORWARDER_DATABASE_URL"].replace("+asyncpg", ""))
    await session.execute("DELETE FROM reservations WHERE id IN (SELECT id FROM reservations ORDER BY id DESC LIMIT 5)")
    await session.close()
    await night.running.start()
    await night.incident(
        "the store was restored",
        ("ForwarderOutOfStep", {"check": "store_in_step_with_topics"}),
        (("recover", "--from-snapshot", "--dry-run"), "submissions were missing"),
        lambda: night.typed("recover", "--from-snapshot"),
        status=r"^! the store lacks what the topics record: .* workers wait: worker on ",
    )
    for each in accepted:
        settled = await night.running.settled("other", each.json()["data"]["requestId"])
        assert settled["status"] == "CONFIRMED"


_INCIDENTS: Final = (
    _pms_down,
    _pms_hangs,
    _pms_slow,
    _pms_revokes_the_credential,
    _pms_is_not_who_it_was,
    _pms_answers_nonsense,
    _dead_letters_come,
    _a_message_that_nobody_can_read,
    _a_message_is_forged,
    _a_webhook_fails,
    _worker_gone,
    _lag_grows,
    _store_down,
    _log_down,
    _ingress_gone,
    _store_restored,
)
