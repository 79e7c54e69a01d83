"""The deployment of one history: two ingresses, workers, PMSs, callers and an operator, in one simulated time.

Methods are called while time stands still; `pass_time` lets it go by. What is not here is in the machine's worlds, which this
builds on: the steps of processes at the store and the log, where mishaps strike.
"""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, closing, suppress
from itertools import count
from typing import Any, Final, cast

import httpx

from forwarder.http.messages import Admission
from forwarder.http.server import HttpApp
from forwarder.ingress.message import IngressParts, IngressSettings
from forwarder.ingress.routes import ingress_routes
from forwarder.operate.deployment.recovery import Recovery
from forwarder.operate.submissions.settle import Repair
from forwarder.operate.tenants.accounts import Accounts
from forwarder.oversight.losses import TopicCheck
from forwarder.oversight.restored import RecoveryCheck
from forwarder.pms.accounts import target_of
from forwarder.pms.directory import open_directory
from forwarder.pms.http.client import Held, PushPolicy, Request, Reuse
from forwarder.pms.http.response import NoResponse, NotSent, Response, connection_lost, unreachable
from forwarder.pms.port import LEASE_LOST, AccountConnection
from forwarder.pms.registry import registered
from forwarder.pms.rehearsal import Previews
from forwarder.query.routes import Queries, query_routes
from forwarder.reservation.submission import RequestIds
from forwarder.store.engine import identity_of
from forwarder.store.lists.reader import Reader
from forwarder.store.retention import Purger
from forwarder.store.submissions.card_keys import CardKeys
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.store.submissions.repairs import Places, StoreRecovery
from forwarder.tenancy.access import Access, RateLimits
from forwarder.tenancy.port import ALL_SCOPES, Account, ApiKey, Sealer, TenancyUnavailable
from forwarder.tenancy.sealing import of_credential, with_credential
from forwarder.tenancy.sql.admin import TenancyAdmin
from forwarder.tenancy.sql.directory import CacheTimes
from forwarder.topics import codec
from forwarder.topics.codec import MessageSigner, decode_data, header, is_outcome, subject
from forwarder.topics.outcomes import OutcomeListener
from forwarder.topics.port import Log, LogUnavailable, Message
from forwarder.worker.parts import GROUP, WorkerParts, WorkerSettings
from forwarder.worker.service import Worker
from tests.net.log import NetLog, NetProcessLog
from tests.net.pms import PUSH_SECONDS, SHAPES, Lost, NetPms
from tests.net.record import Event, Record, Trouble, short
from tests.net.worlds.log import TOPICS
from tests.net.worlds.mishap import Effect
from tests.net.worlds.ownership import Ownership
from tests.net.worlds.process import Crash, HostClock, Process, own_tasks
from tests.net.worlds.store import Store
from tests.net.worlds.virtual_time import VirtualTimeLoop, unexpected
from tests.support.memory.audit import memory_audit
from tests.support.sealing import keyring_of
from tests.support.worker.cards import OneSealingKey, card_parts

DOORS: Final = 2
WORKERS: Final = 3
HOSTS: Final = DOORS + WORKERS + 1
"""Engines that the store is opened with: one for each process, and one for the operator."""
_OPERATOR: Final = HOSTS - 1

ACCOUNTS: Final[Mapping[str, str]] = {"alpha-1": "alpha", "alpha-2": "alpha", "beta-1": "beta"}
"""The workspace of each account."""
_SECRET: Final = "a secret of the net alone"
_KEY: Final = b"0123456789abcdef"
_MAY_HAPPEN: Final = (Crash, asyncio.CancelledError, StoreUnavailable, LogUnavailable, TenancyUnavailable)
_SETTINGS: Final = WorkerSettings(
    intake_batch=4,
    intake_wait_seconds=1.0,
    max_held=8,
    record_batch=4,
    lease_seconds=45.0,
    sweep_seconds=8.0,
    grace_seconds=20.0,
    push_seconds=PUSH_SECONDS,
    republish_seconds=30.0,
)


class AccountTable:
    """Accounts, in memory. `Directory` for every process: it learns of a change some seconds later."""

    def __init__(self, shapes: Mapping[str, str], settings: Mapping[str, Any], loop: VirtualTimeLoop) -> None:
        self._loop = loop
        self.keys = {f"token-{each}": ApiKey(f"key-{each}", each, scopes=ALL_SCOPES) for each in ACCOUNTS.values()}
        self.known: dict[str, Account] = {}
        self._before: dict[str, tuple[float, Account]] = {}
        """The accounts that changed, as they were, and until when processes know them so."""
        for name, workspace in ACCOUNTS.items():
            own = {"options": SHAPES[shapes[name]], "duplicate_window_seconds": 24 * 3600, **settings}
            account = Account(name, workspace, "generic", f"https://{name}.pms.test", **own)
            self.known[name] = with_credential(account, f"token-of-{name}", keyring_of(_SECRET))

    async def accounts(self) -> Sequence[Account]:
        return list(self.known.values())

    async def change_account(self, _was: Account, account: Account) -> None:
        self._before.setdefault(account.id, (self._loop.time() + CacheTimes().known, self.known[account.id]))
        self.known[account.id] = account

    async def forget_grants(self, account_id: str, *, but: str) -> None:
        """These PMSs take tokens, and grant nothing."""

    async def key(self, token: str) -> ApiKey | None:
        return self.keys.get(token)

    async def account(self, account_id: str, workspace_id: str | None = None) -> Account | None:
        until, before = self._before.get(account_id, (0.0, None))
        if before is not None and self._loop.time() < until:
            return before
        self._before.pop(account_id, None)
        return self.known.get(account_id)


class ProcessTransport:
    """What carries one worker's requests to PMSs."""

    def __init__(self, world: "World", process: Process) -> None:
        self._world, self._process = world, process

    async def exchange(
        self, request: Request, deadline: float, held: Held | None = None, reuse: Reuse | None = None
    ) -> Response:
        process, began = self._process, self._world.now
        await process.awake()
        name = {"POST": "create", "GET": "find"}.get(request.method, "cancel")
        mishap = process.mishaps.ahead("pms", name)
        if mishap is not None and mishap.effect is not Effect.REFUSED:
            await process.suffer(mishap)
        pms = self._world.pms_of(request)
        refused = mishap is not None and mishap.effect is Effect.REFUSED
        if refused or pms is None or pms.down_until > self._world.now:
            raise unreachable("nobody answers")
        if held is not None and not held():
            raise NotSent(LEASE_LOST, "It was held no longer when this was to be sent.")
        if name == "create":
            self._world.about_to_create(process, json.loads(request.content)["reference"], began)
        mishap = process.mishaps.step("pms", name)
        answering = asyncio.Task(pms.answer(request), loop=self._world.loop)  # goes on whatever becomes of the process
        process.pushes_under_way += 1
        try:
            if mishap is not None:
                await process.suffer(mishap)
            async with asyncio.timeout_at(deadline):
                response = await asyncio.shield(answering)
        except TimeoutError:
            raise NoResponse("pms_timed_out", "The PMS was sent the request and did not answer in time.") from None
        except Lost:
            raise connection_lost("it ended") from None
        finally:
            process.pushes_under_way -= 1
            answering.add_done_callback(lambda done: done.cancelled() or done.exception())
        await process.awake()
        if mishap is not None and mishap.effect is Effect.UNANSWERED:
            raise connection_lost("it ended")
        return response

    async def aclose(self) -> None:
        pass


class Door:
    """An ingress with a query stage, and what it remembers."""

    def __init__(self, world: "World", number: int, clock: HostClock) -> None:
        self.id = next(world.door_ids)
        """Another one after each restart."""
        self.process = process = Process(f"ingress {number}", world.loop, clock)
        log = NetProcessLog(world.log, process)
        reader = world.store.port(process, Reader(world.store.hosts[number]))
        access = Access(world.accounts, process.clock)
        outcomes = OutcomeListener(log.new_tail(TOPICS.results), process.clock)
        admission = Admission()
        ingress = IngressParts(
            publisher=log,
            signer=world.signer,
            requests_topic=TOPICS.requests,
            access=access,
            sealer=world.sealing_key.sealer,
            ids=world.ids,
            reader=reader,
            outcomes=outcomes,
            clock=process.clock,
            can_cancel=lambda _: True,
            preview=lambda: Previews(process.clock),
            limits=RateLimits(process.clock),
            audit=memory_audit(process.clock),
            admission=admission,
            settings=IngressSettings(),
        )
        query = Queries(access, reader, world.ids, outcomes, process.clock)
        self.app = HttpApp([*ingress_routes(ingress), *query_routes(query)], process.clock, admission=admission)
        _ = process.spawn(outcomes.run())


class Running:
    """A worker at work."""

    def __init__(self, process: Process, worker: Worker) -> None:
        self.process, self.worker = process, worker
        self.stop = asyncio.Event()
        self.task = process.spawn(worker.run(self.stop))


class World:
    """Everything there is. `shapes`: the PMS of each account; `settings`: those of all accounts."""

    def __init__(
        self, store: Store, shapes: Mapping[str, str], settings: Mapping[str, Any], *, workers: int = 2
    ) -> None:
        store.clear()
        self.store = store
        self.record = Record()
        self.loop = VirtualTimeLoop()
        self.loop.set_task_factory(own_tasks)
        self.loop.set_exception_handler(unexpected(self.record.ended, (*_MAY_HAPPEN, Lost)))
        self.log = NetLog(self.loop, Ownership(store.row), self._heard)
        self.accounts = AccountTable(shapes, settings, self.loop)
        self.pmss = {name: NetPms(name, shapes[name], self.loop, self.record) for name in ACCOUNTS}
        others = {name: NetPms(name, shapes[name], self.loop, self.record) for name in ACCOUNTS}
        self.pmss_by_host = {f"{name}.pms.test": pms for name, pms in self.pmss.items()}
        self.pmss_by_host |= {f"other-{name}.pms.test": pms for name, pms in others.items()}
        """The PMS that is at each address: at the second, and under another account's credential, another one, which gives the
        same ids."""
        self.strayed: set[str] = set()
        """Accounts that were once pointed to another PMS, or to another account of theirs."""
        self.ids, self.signer, self.sealing_key = RequestIds(_KEY), MessageSigner(_KEY), OneSealingKey()
        self.clocks = [HostClock() for _ in range(HOSTS)]
        self.aside = Process("operator", self.loop, self.clocks[_OPERATOR])
        self.door_ids = count()
        self.doors = [Door(self, number, self.clocks[number]) for number in range(DOORS)]
        self.workers: list[Running | None] = [None] * WORKERS
        self.snapshots: list[tuple[float, bytes]] = []
        self._databases = 1
        for engine in store.hosts:
            identity_of(engine).note(f"database of {id(self)}")
        for _ in range(workers):
            self.start_worker()
        self.pass_time(0.5)

    def close(self) -> None:
        """The end of everything."""
        for process in [*self.processes(), *(door.process for door in self.doors), self.aside]:
            process.crash()
        self.pass_time(0.0)
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_for(0.0)
        self.loop.close()

    @property
    def now(self) -> float:
        return self.loop.time()

    def say(self, text: str) -> None:
        """One more line of the story."""
        self.record.say(self.now, text)

    def pms_of(self, request: Request) -> NetPms | None:
        """The PMS that gets it."""
        host = httpx.URL(request.url).host
        strange = any(b"another-token" in value for name, value in request.headers if name.lower() == b"authorization")
        return self.pmss_by_host.get(f"other-{host.removeprefix('other-')}" if strange else host)

    def about_to_create(self, process: Process, reference: str, began: float) -> None:
        """Whether a worker may send this, unless the store went back: then it may not know any more that it may."""
        if not self.record.losses:
            sent = {each.reference for each in self.record.creates}
            self.log.ownership.send(process, reference, began, first=reference not in sent)

    def trouble(self, seconds: float) -> None:
        """From now on the infrastructure is not well for so long, and for a while after that until it has caught up."""
        self.record.troubles.append(Trouble(self.now, self.now + seconds + 60.0))

    # --- processes -----------------------------------------------------------------------------------------------------
    def start_worker(self) -> None:
        """One more worker, on the first host that has none."""
        place = next((place for place, running in enumerate(self.workers) if running is None), None)
        if place is not None:
            process = Process(f"worker {place}", self.loop, self.clocks[DOORS + place])
            self.workers[place] = Running(process, self.loop_run(self._worker(process, DOORS + place)))

    def loop_run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What `work`, which waits for nothing, returns."""
        found: list[Any] = []

        async def run() -> None:
            found.append(await work)

        task = self.loop.create_task(run())
        self.loop.run_for(0.0)
        task.result()
        return found[0]

    async def _worker(self, process: Process, host: int) -> Worker:
        log = NetProcessLog(self.log, process)
        pms = await AsyncExitStack().enter_async_context(
            open_directory(
                process.clock,
                policy=PushPolicy(push_seconds=PUSH_SECONDS),
                transport=ProcessTransport(self, process),
                registry=registered(),
            )
        )
        return Worker(
            WorkerParts(
                log=cast("Log", log),
                topics=TOPICS,
                publisher=log,
                recorder=self.store.recorder(process, host, self.log.ownership),
                directory=self.accounts,
                unsealer=keyring_of(_SECRET),
                pms=pms,
                clock=process.clock,
                settings=_SETTINGS,
                signer=self.signer,
                cards=card_parts(self.store.card_keys(process, host), self.sealing_key),
                credential_key=_KEY,
                lacking=self._check(log, process, host).lacking,
                topic_losses=TopicCheck(
                    cast("Log", log),
                    TOPICS.requests,
                    self.store.port(process, Places(self.store.hosts[host])),
                    process.clock,
                ),
            )
        )

    def _check(self, log: NetProcessLog, process: Process, host: int) -> RecoveryCheck:
        engine = self.store.hosts[host]
        return RecoveryCheck(
            cast("Log", log),
            TOPICS,
            GROUP,
            known=self.store.port(process, CardKeys(engine)).known,
            store=self.store.port(process, StoreRecovery(engine)),
            vouches=self.ids.vouches,
            purged_before=self.store.port(process, Purger(engine)).purged_before,
            signer=self.signer,
        )

    def processes(self) -> list[Process]:
        """Of all workers that live."""
        return [running.process for running in self.workers if running is not None]

    def at(self, place: int) -> list[Process]:
        """The worker at that place among those that live, if one lives."""
        living = self.processes()
        return [living[place % len(living)]] if living else []

    def stop_worker(self, place: int) -> None:
        """As by SIGTERM."""
        for process in self.at(place):
            for running in self.workers:
                if running is not None and running.process is process:
                    running.stop.set()

    def restart_door(self, number: int) -> None:
        """Killed, and started again with an empty memory."""
        self.doors[number].process.crash()
        self.pass_time(0.0)
        self.doors[number].process.bury()
        self.doors[number] = Door(self, number, self.clocks[number])

    def pass_time(self, seconds: float) -> None:
        """Let it go by."""
        self.loop.run_for(seconds)
        for place, running in enumerate(self.workers):
            if running is None:
                continue
            if running.process.crashed:
                running.process.bury()
                self.workers[place] = None
            elif running.task.done():
                self.workers[place] = None
                error = None if running.task.cancelled() else running.task.exception()
                if error is not None or not running.stop.is_set():
                    self.record.ended.append(f"{running.process.name} ended by itself: {error!r}")

    # --- HTTP ----------------------------------------------------------------------------------------------------------
    def call(
        self,
        door: int,
        account: str,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        workspace: str | None = None,
        then: Callable[[int, Mapping[str, str], Any], None],
    ) -> None:
        """A request to one ingress. `then` is called with its answer; never, if that is lost."""
        workspace = workspace or ACCOUNTS[account]
        given = {
            "authorization": f"Bearer token-{workspace}",
            "workspaceid": workspace,
            "integrationaccountid": account,
            "content-type": "application/json",
            "host": "forwarder.test",
            **(headers or {}),
        }
        content = b"" if body is None else json.dumps(body).encode()
        process = self.doors[door].process
        app = self.doors[door].app

        async def exchange() -> None:
            await asyncio.sleep(0.01)
            sent: list[Mapping[str, Any]] = []
            left = asyncio.get_running_loop().create_future()
            pending = [{"type": "http.request", "body": content, "more_body": False}]

            async def receive() -> Any:
                return pending.pop() if pending else await left

            async def send(message: Any) -> None:
                sent.append(message)

            raw = [(name.encode(), value.encode()) for name, value in given.items()]
            scope = {
                "type": "http",
                "asgi": {"version": "3.0"},
                "http_version": "1.1",
                "method": method,
                "scheme": "http",
                "path": path,
                "raw_path": path.encode(),
                "root_path": "",
                "query_string": b"",
                "headers": raw,
                "client": ("203.0.113.7", 4711),
                "server": ("forwarder.test", 80),
            }
            await app(scope, receive, send)
            left.cancel()
            await process.awake()
            found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
            text = b"".join(message.get("body", b"") for message in sent[1:])
            then(sent[0]["status"], found, json.loads(text) if text else {})

        _ = process.spawn(exchange())

    def _heard(self, message: Message) -> None:
        event_id, kind = header(message.headers, "ce_id") or "", header(message.headers, "ce_type") or ""
        request_id, _, revision = event_id.rpartition(".")
        if is_outcome(message):
            data = decode_data(message)
            self.record.events.append(Event(self.now, request_id, int(revision), kind.split(".")[1], data))
            self.say(f"event {kind.split('.')[1]} of {short(request_id)}")
        elif kind in {codec.DUPLICATE, codec.CONFLICT}:
            named = subject(message.headers) or ""
            self.record.events.append(Event(self.now, named, 0, kind.split(".")[1], decode_data(message)))

    def lose(self, messages: Sequence[Message], *, unseen: bool) -> None:
        """These are gone from the log. Whoever is concerned may wait for ever; the deployment has to say so, unless they are gone
        `unseen`."""
        gone = {found: self.now for message in messages if (found := subject(message.headers))}
        self.record.gone |= gone
        self.record.unseen |= gone.keys() if unseen else set()

    # --- the store that goes back --------------------------------------------------------------------------------------
    def take_snapshot(self) -> None:
        """For `restore`. The last minutes' are kept."""
        if self.store.dialect == "sqlite":
            with closing(sqlite3.connect(self._file)) as source, closing(sqlite3.connect(":memory:")) as copy:
                source.backup(copy)
                self.snapshots.append((self.now, copy.serialize()))
            del self.snapshots[:-40]

    def restore(self, seconds: float) -> bool:
        """The database becomes what it was so long ago: another one behind the same address. False if there is no snapshot."""
        before = [content for at, content in self.snapshots if at <= self.now - seconds]
        if not before or self.store.dialect != "sqlite":
            return False
        with closing(sqlite3.connect(":memory:")) as copy, closing(sqlite3.connect(self._file)) as target:
            # A database in memory cannot have a write-ahead log: these two bytes say that it has none.
            copy.deserialize(before[-1][:18] + b"\1\1" + before[-1][20:])
            copy.backup(target)
        self.snapshots = [each for each in self.snapshots if each[1] is before[-1] or each[0] <= self.now - seconds]
        self._databases += 1
        for engine in self.store.hosts:
            identity_of(engine).note(f"database {self._databases} of {id(self)}")
        if not self.record.losses or self.record.losses[-1][1] != float("inf"):
            self.record.losses.append((self.now, float("inf")))
        return True

    @property
    def _file(self) -> str:
        return str(self.store.hosts[0].url.database)

    def recover(self) -> None:
        """As an operator does: stop the workers, `forwarder recover`, start them again."""
        living = max(len(self.processes()), 1)
        for place in range(WORKERS):
            self.stop_worker(place)
        self.pass_time(60.0)
        for process in self.processes():
            process.crash()
        self.pass_time(0.0)
        recovering = self.aside.spawn(self._recover())
        for _ in range(20):
            self.pass_time(30.0)
            if recovering.done():
                break
        if not recovering.done() or recovering.exception() is not None:
            error = recovering.exception() if recovering.done() else "it does not end"
            self.record.ended.append(f"recover failed: {error!r}")
        if self.record.losses:
            begin, _ = self.record.losses[-1]
            self.record.losses[-1] = (begin, self.now + 1.0)
        for _ in range(living):
            self.start_worker()

    async def _recover(self) -> None:
        engine, process = self.store.hosts[_OPERATOR], self.aside
        log = NetProcessLog(self.log, process)
        kinds = registered().kinds

        def target(account: Account) -> str:
            connection = AccountConnection(account.id, account.kind, account.base_url, "", options=account.options)
            can = kinds[account.kind](connection, process.clock).capabilities
            return target_of(account.kind, account.base_url, None, can).text

        recovery = Recovery(
            log=cast("Log", log),
            topics=TOPICS,
            publisher=log,
            recorder=self.store.recorder(process, _OPERATOR, self.log.ownership),
            store=self.store.port(process, StoreRecovery(engine)),
            directory=self.accounts,
            check=self._check(log, process, _OPERATOR),
            target=target,
            audit=memory_audit(process.clock),
            clock=process.clock,
        )
        await recovery.run()

    def is_behind(self) -> bool:
        """Whether a worker says that the store lacks something."""
        return any(not running.worker.in_step for running in self.workers if running is not None)

    # --- an operator ---------------------------------------------------------------------------------------------------
    def operate(self, work: Coroutine[Any, Any, Any], refusals: tuple[type[Exception], ...] = ()) -> None:
        """Do that now, unless it is refused or the store is away."""

        async def run() -> None:
            with suppress(*refusals, StoreUnavailable, LogUnavailable):
                await work

        _ = self.aside.spawn(run())
        self.pass_time(0.2)

    def change_account(self, account_id: str, *, credential: str | None = None, **settings: Any) -> None:
        """As `forwarder account set`. A credential is sealed for the addresses of its account, so that it is given with others."""
        options = settings.pop("options", None)
        if credential is None and (options is not None or "base_url" in settings):
            present = self.accounts.known[account_id]
            credential = keyring_of(_SECRET).open_text(present.credential, of_credential(present))

        async def sealer() -> Sealer:
            return keyring_of(_SECRET)

        changing = Accounts(cast("TenancyAdmin", self.accounts), sealer, clock=self.aside.clock)
        self.operate(
            changing.change(
                account_id, credential=credential, options=options or {}, all_options=options is not None, **settings
            )
        )

    def repair(self) -> Repair:
        """The operator's hand on rows in doubt."""
        return Repair(self.store.repairs(self.aside, _OPERATOR), self.aside.clock, memory_audit(self.aside.clock))

    def in_doubt(self) -> Sequence[str]:
        """The request ids of what is parked."""
        (rows,) = self.store.read("SELECT request_id FROM reservations WHERE status = 'IN_DOUBT' ORDER BY id")
        return [row.request_id for row in rows]
