"""`forwarder doctor`: checks a deployment's setup step by step, each with a remedy. Read-only; `status` shows how it is doing."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Literal
from urllib.request import urlopen

from forwarder.assembly.backend import held_secrets
from forwarder.operate.deployment.conditions import some, span
from forwarder.operate.deployment.status import groups_of, open_status, valid_sealing_keys
from forwarder.operate.output import Grid, Printed
from forwarder.oversight.assumptions import ServerFacts, broken_assumptions
from forwarder.oversight.audit import OUTAGES
from forwarder.oversight.backlog import read_lag
from forwarder.process.certificates import ENDS_SOON, certificate_ends, pem_of
from forwarder.process.clock import Clock
from forwarder.settings import Embedded, Settings, settings_and_logging
from forwarder.settings.backend import certificates_of
from forwarder.store.engine import Engine
from forwarder.store.lists.overview import Overview
from forwarder.store.migrate import applied_revisions, is_current
from forwarder.tenancy.sealing import UnknownSecret
from forwarder.tenancy.sql.admin import TenancyAdmin
from forwarder.tenancy.sql.secrets import SqlSecrets
from forwarder.topics.port import Log

Verdict = Literal["ok", "warning", "failed", "not tried"]

_STEP_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    verdict: Verdict
    says: str
    mend: str | None = None


@dataclass(frozen=True, slots=True)
class CheckedDeployment:
    settings: Settings
    log: Log
    engine: Engine
    overview: Overview
    tenancy: TenancyAdmin
    clock: Clock

    async def revisions(self) -> tuple[Sequence[str], bool]:
        return await applied_revisions(self.engine), await is_current(self.engine)

    async def admit(self) -> str | None:
        """This process's secrets. Raises `UnknownSecret` for one that is not this deployment's."""
        if held := held_secrets(self.settings):
            await SqlSecrets(self.engine).admit(held, first=False)
        return ", ".join(secret.id for secret in held) or None

    def certificates(self) -> Mapping[str, Path]:
        """The files of the certificates that processes with these settings show, by setting."""
        return certificates_of(self.settings.environment, self.settings.backend)

    async def sealing_keys(self) -> Sequence[str]:
        return await valid_sealing_keys(self.engine, self.clock.now())


async def examine(parts: CheckedDeployment) -> Sequence[Step]:
    """All steps. A step whose prerequisite failed is reported as not tried."""
    backend = parts.settings.backend
    if isinstance(backend, Embedded):
        where = f"embedded, in {backend.data_dir}"
    else:
        where = f"Kafka at {backend.bootstrap_servers}, PostgreSQL at {', '.join(backend.hosts[-1:])}"
    found = [Step("settings", "ok", where)]
    store_is_sound = True
    steps = {"log": _topics, "store": _tables, "clock": _time, "secret": _secret, "cards": _cards, "callers": _callers}
    for name, step in steps.items():
        if not store_is_sound:
            found.append(Step(name, "not tried", "the store comes first"))
            continue
        try:
            async with asyncio.timeout(_STEP_SECONDS):
                taken = await step(parts)
        except TimeoutError:
            says = f"no answer within {_STEP_SECONDS:.0f} s"
            taken = [Step(name, "failed", says, "is it up, and reached from here?")]
        except OUTAGES as error:
            remedy = "start it, or correct its address and credentials in the settings"
            taken = [Step(name, "failed", str(error), remedy)]
        found += taken
        store_is_sound = name != "store" or taken[0].verdict == "ok"
    found += _certificates(parts.certificates(), parts.clock.now())
    return [*found, await _simulator(parts.settings.environment.simulator_url)]


async def _topics(parts: CheckedDeployment) -> Sequence[Step]:
    wanted, partitions = parts.settings.topics.all(), parts.settings.environment.partitions
    async with parts.log.admin() as admin:
        described = await admin.describe(wanted)
        settings = {name: await admin.settings(name) for name in described}
    groups = [group for group in groups_of(parts.settings) if group.topic in described]
    missing = [name for name in wanted if name not in described]
    found = [Step("topics", "failed", f"there is no {name}", "forwarder topics create") for name in missing]
    for name, state in described.items():
        faults = _steps(f"topic {name}", ServerFacts(settings[name], name, state, partitions))
        sync = f"{some(state.replicas, 'replica')}, {state.in_sync} in sync"
        found += faults or [Step(f"topic {name}", "ok", f"{some(state.partitions, 'partition')}, {sync}")]
    for lag in await read_lag(parts.log, groups, parts.clock):
        name, topic = f"group {lag.group.name}", lag.group.topic
        if lag.kept is None:
            found.append(Step(name, "ok", f"{topic} keeps messages forever, or does not say for how long"))
            continue
        age = span(timedelta(seconds=lag.seconds))
        unread = f"has unread messages of {age}" if lag.messages else "has read everything"
        says, left = f"{unread}; {topic} keeps messages for {span(lag.kept)}", lag.deleted_in
        remedy = None if left is None else f"the first are deleted in {span(left)}: forwarder status says what to do"
        found.append(Step(name, "ok" if remedy is None else "failed", says, remedy))
    return found


def _steps(name: str, facts: ServerFacts) -> list[Step]:
    return [
        Step(name, "ok" if each.severity == "info" else each.severity, each.says, each.remedy)
        for each in broken_assumptions(facts)
    ]


async def _tables(parts: CheckedDeployment) -> Sequence[Step]:
    revisions, current = await parts.revisions()
    says = f"tables at {', '.join(revisions) or 'nothing'}"
    if not current:
        return [Step("store", "failed", says, "forwarder migrate")]
    settings, standbys = await parts.overview.server_settings()
    return [Step("store", "ok", says), *_steps("database", ServerFacts(settings, standbys=standbys))]


async def _time(parts: CheckedDeployment) -> Sequence[Step]:
    apart = abs(await parts.overview.time() - parts.clock.now())
    says = f"{apart.total_seconds():.1f} s apart from the database's"
    if apart <= timedelta(seconds=2):
        return [Step("clock", "ok", says)]
    verdict: Verdict = "failed" if apart > timedelta(seconds=30) else "warning"
    return [Step("clock", verdict, f"{says}: what is due comes early or late", "let NTP set both")]


async def _secret(parts: CheckedDeployment) -> Sequence[Step]:
    try:
        held = await parts.admit()
    except UnknownSecret as error:
        return [Step("secret", "failed", str(error), "forwarder secret status")]
    unset = "not set here, which is right for the ingress and query; migrate and workers need it"
    return [Step("secret", "ok", unset if held is None else f"{held} is this deployment's")]


async def _cards(parts: CheckedDeployment) -> Sequence[Step]:
    if keys := await parts.sealing_keys():
        return [Step("cards", "ok", f"are sealed to {', '.join(keys)}")]
    remedy = "start a worker, which makes them, or run forwarder migrate"
    return [Step("cards", "failed", "no key is valid now: submissions with a card are refused", remedy)]


def _certificates(files: Mapping[str, Path], now: datetime) -> Iterator[Step]:
    for setting, file in files.items():
        name = f"certificate {file}"
        try:
            ends = certificate_ends(pem_of(file))
        except (OSError, ValueError) as error:
            yield Step(name, "failed", f"cannot be read: {error}", f"correct {setting}")
            continue
        says = f"{'ended' if ends <= now else 'ends'} on {ends:%Y-%m-%d}"
        renewed = "processes load the new file" if setting.startswith("FORWARDER_TLS") else "restart the processes"
        verdict: Verdict = "failed" if ends <= now else "warning" if ends <= now + ENDS_SOON else "ok"
        yield Step(name, verdict, says, None if verdict == "ok" else f"renew it in place; {renewed}")


async def _callers(parts: CheckedDeployment) -> Sequence[Step]:
    keys = [each for each in await parts.tenancy.keys() if each.revoked_at is None]
    account = "forwarder account add --workspace ID --kind KIND --base-url URL --credential-file -"
    found = []
    for what, count, command in (
        ("workspace", len(await parts.tenancy.workspaces()), "forwarder workspace add ID"),
        ("key", len(keys), "forwarder key add --workspace ID"),
        ("account", len(await parts.tenancy.accounts()), account),
    ):
        if not count:
            return [Step("callers", "warning", f"there is no {what} yet: no caller can submit", command)]
        found.append(some(count, what))
    return [Step("callers", "ok", ", ".join(found))]


async def _simulator(url: str | None) -> Step:
    if url is None:
        unset = "FORWARDER_SIMULATOR_URL is not set: test keys are refused"
        return Step("simulator", "not tried", f"{unset}, except by `forwarder up`, which has one of its own")
    mend = "start `forwarder simulate`, or correct FORWARDER_SIMULATOR_URL"
    try:
        (await asyncio.to_thread(urlopen, f"{url}/healthz", timeout=_STEP_SECONDS)).close()
    except OSError as error:  # an answer that is no 2xx too
        return Step("simulator", "failed", f"{url}: {error}", mend)
    return Step("simulator", "ok", f"{url} is there")


@asynccontextmanager
async def open_doctor(settings: Settings) -> AsyncIterator[CheckedDeployment]:
    """Opens the deployment of `settings`. Raises `Failed` as `require_data`."""
    async with open_status(settings) as opened:
        engine = opened.engine
        yield CheckedDeployment(settings, opened.log, engine, Overview(engine), TenancyAdmin(engine), opened.clock)


async def doctor() -> Printed:
    """Check how the deployment is set up: settings, log, topics, store, clock, secret, keys and simulator, and say what to do.

    Read-only. Exit code 1 if a step fails. `forwarder status` shows how the deployment is doing."""
    async with open_doctor(settings_and_logging("error")) as parts:
        steps = await examine(parts)
    rows: list[tuple[str, str, str]] = []
    for step in steps:
        rows += [(step.verdict, step.name, step.says)]
        rows += [] if step.mend is None else [("", "", f"-> {step.mend}")]
    failed = sum(step.verdict == "failed" for step in steps)
    return Printed(steps, Grid(rows), failed=f"{failed} of {len(steps)} steps failed" if failed else None)
