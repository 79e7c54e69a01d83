"""The worker process."""

from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress

import structlog

from forwarder.assembly import role
from forwarder.assembly.backend import Backend
from forwarder.assembly.parts import recovery_check, topic_check
from forwarder.http.health import Health
from forwarder.oversight.assumptions import ServerFacts, broken_assumptions
from forwarder.oversight.restored import LOOKED_AT
from forwarder.pms.auth import RenewalTimes, SharedGrantKeeper
from forwarder.pms.directory import open_directory
from forwarder.pms.http.client import PushPolicy
from forwarder.pms.registry import registered
from forwarder.process.supervision import Stop, side_by_side
from forwarder.settings import Embedded, Settings
from forwarder.store.deployment import SqlLender
from forwarder.store.submissions.card_keys import CardKeys
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.store.submissions.recorder import Recorder
from forwarder.tenancy.sealing import Keyring, active_of
from forwarder.tenancy.sql.secrets import SealingKeys, SqlGrants, SqlSecrets
from forwarder.topics.port import LogUnavailable, Publisher
from forwarder.worker.cards import CardParts
from forwarder.worker.parts import WorkerParts
from forwarder.worker.service import Worker

_log = structlog.get_logger(__name__)


async def run_worker(settings: Settings, listening: role.Listening, stop: Stop) -> None:
    """Works until `stop`; the port serves health and metrics."""
    async with AsyncExitStack() as stack:
        backend = await role.open_role_backend(stack, settings, "worker")
        publisher = await stack.enter_async_context(backend.log.publisher())
        worker = await open_worker(stack, backend, publisher)
        await _log_broken_assumptions(backend)
        health = worker_health(backend, worker, publisher)
        # Serve health and metrics until the work in progress is done.
        done = Stop()
        async with side_by_side(role.then_set(done, worker.run(stop)), stop):
            await role.serve_role(
                "worker", [], backend, listening, done, health=health, leaving=stop, throttles=worker.throttles
            )


async def open_worker(stack: AsyncExitStack, backend: Backend, publisher: Publisher) -> Worker:
    """A worker, whose parts `stack` closes. Loads its accounts' adapters: one that fails is reported now, not by a reservation."""
    settings, clock = backend.settings, backend.clock
    keyring = backend.required_keyring()
    for kind in await backend.tenancy.kinds():
        registered().kinds.get(kind)  # submissions of a missing kind wait until it is installed
    environment, push_seconds = settings.environment, settings.environment.push_timeout_seconds
    grants, policy = grants_of(backend, keyring, push_seconds), PushPolicy(push_seconds=push_seconds)
    plaintext, traces = environment.plaintext_to_pms, environment.trace_to_pms
    opening = open_directory(
        clock, policy=policy, grants=grants, plaintext=plaintext, tracer=backend.tracer, forward_traces=traces
    )
    pms = await stack.enter_async_context(opening)
    stack.push_async_callback(grants.finish)
    signer, ids = await backend.signer(), await backend.request_ids()
    check = recovery_check(backend, ids, signer)

    async def lacking(looked_at: int = LOOKED_AT) -> Mapping[str, int]:
        """Also `keys`, if the store has others than this process: it is another deployment's store."""
        counts = await check.lacking(looked_at)
        return counts if await backend.has_our_keys() else {**counts, "keys": 1}

    async def refresh() -> None:
        if active := active_of(await SqlSecrets(backend.engine).known()):
            keyring.activate(active.id)

    parts = WorkerParts(
        log=backend.log,
        topics=settings.topics,
        publisher=publisher,
        recorder=Recorder(backend.engine),
        directory=backend.pushing_directory(),
        unsealer=keyring,
        pms=pms,
        clock=clock,
        settings=settings.worker,
        signer=signer,
        cards=CardParts(CardKeys(backend.engine), SealingKeys(backend.engine, keyring), keyring, refresh),
        credential_key=ids.mac_key,
        lender=None if isinstance(settings.backend, Embedded) else SqlLender(backend.engine),
        lacking=lacking,
        topic_losses=topic_check(backend),
    )
    return Worker(parts)


def worker_health(backend: Backend, worker: Worker, publisher: Publisher) -> Health:
    """Ready if it consumes, can decode its topic, its log and its store work, and the store is not known to lack what the topics
    record. A topic that lacks what the store took from it does not stop it."""
    checks = {**role.consuming_checks(worker), **role.store_checks(backend)}
    checks |= {"store_in_step_with_topics": lambda: not worker.behind, "log": publisher.ready}
    return Health(checks, {"topics_in_step_with_store": lambda: worker.topic_whole})


async def _log_broken_assumptions(backend: Backend) -> None:
    """Logs violated assumptions. Logs nothing during an outage: `forwarder doctor` reports them later."""
    with suppress(LogUnavailable, StoreUnavailable):
        async with backend.log.admin() as admin:
            topics = await admin.describe(backend.settings.topics.all())
            partitions = backend.settings.environment.partitions
            facts = [ServerFacts(await admin.settings(name), name, state, partitions) for name, state in topics.items()]
        settings, standbys = await backend.overview.server_settings()
        for each in (*facts, ServerFacts(settings, standbys=standbys)):
            for broken in broken_assumptions(each):
                if broken.severity != "info":
                    name, says, remedy = broken.name, broken.says, broken.remedy
                    _log.warning("assumption.broken", name=name, topic=each.topic, says=says, remedy=remedy)


def grants_of(backend: Backend, keyring: Keyring, push_seconds: float) -> SharedGrantKeeper:
    """Grants are sealed to the secret that all workers share."""
    rows = SqlGrants(backend.engine, keyring, keyring)
    times = RenewalTimes(push_seconds / 3, push_seconds, overtake_seconds=2 * push_seconds + 15.0)
    return SharedGrantKeeper(rows, backend.clock, times)
