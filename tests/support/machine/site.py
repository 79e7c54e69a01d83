"""A site: hosts with a worker each, and all that they share; and its time, which goes by when it is told to."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from forwarder.pms.port import PmsDirectory
from forwarder.reservation.request import CardDetails, SealedCard
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.sealing import SecretUnsealer, sealer_of
from forwarder.topics.port import Log, LogUnavailable
from forwarder.worker.parts import WorkerParts, WorkerSettings
from forwarder.worker.service import Worker
from tests.support.log.signers import TRUSTING
from tests.support.machine.accounts import Accounts, ProcessAccounts
from tests.support.machine.callers import Callers, Order
from tests.support.machine.operator import Operator
from tests.support.machine.worlds.log import PARTITIONS, TOPICS, GroupLog, ProcessLog
from tests.support.machine.worlds.mishap import Mishap
from tests.support.machine.worlds.ownership import Ownership
from tests.support.machine.worlds.pms import LookReply, Pmss, Reply
from tests.support.machine.worlds.process import Crash, HostClock, Process, own_tasks
from tests.support.machine.worlds.process_pms import ProcessPmss
from tests.support.machine.worlds.store import Store
from tests.support.machine.worlds.virtual_time import VirtualTimeLoop, unexpected
from tests.support.worker.cards import OneSealingKey, card_parts

HOSTS = 3
OPERATOR = HOSTS
CARD_NUMBER = "4111111111111111"
_SEALER = sealer_of("a secret of this machine alone")
_VAULT = SecretUnsealer(["a secret of this machine alone"])
CARD = CardDetails.model_validate({"cardNumber": CARD_NUMBER})
_SEALING_KEY = OneSealingKey()
_MAY_HAPPEN = (Crash, asyncio.CancelledError, StoreUnavailable, LogUnavailable)


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """What goes on between two events: for one account some orders, and what its PMS will say to the next pushes and look-ups;
    what befalls the worker at that `place`, if one is there; and how much time goes by."""

    account: int
    orders: Sequence[Order]
    replies: Sequence[Reply]
    look_replies: Sequence[LookReply]
    place: int
    mishaps: Sequence[Mishap]
    seconds: float


class Running:
    """A worker at work."""

    def __init__(self, process: Process, worker: Worker) -> None:
        self.process = process
        self.worker = worker
        self.stop = asyncio.Event()
        self.task = process.spawn(worker.run(self.stop))
        self.told_to_stop = False


class Site:
    """Everything there is. Methods are called while its time stands still; `pass_time` lets it go by."""

    def __init__(self, store: Store) -> None:
        store.clear()
        self.store = store
        self.failures: list[str] = []
        """What went wrong where nobody looks."""
        self.loop = VirtualTimeLoop()
        self.loop.set_task_factory(own_tasks)
        self.loop.set_exception_handler(unexpected(self.failures, _MAY_HAPPEN))
        self.ownership = Ownership(PARTITIONS, store.row)
        self.log = GroupLog(self.loop, self.ownership)
        self.pmss = Pmss(self.loop)
        self.accounts = Accounts(_SEALER)
        self.clocks = [HostClock() for _ in range(HOSTS)]
        self.settings = WorkerSettings()
        self.workers: list[Running | None] = [None] * HOSTS
        aside = Process("aside", self.loop, HostClock())
        self.callers = Callers(self.log, aside.clock, self._sealed_card)
        self.operator = Operator(self.log, self.pmss, store, aside, OPERATOR)

    def close(self) -> None:
        """The end of everything."""
        for process in self.processes():
            process.crash()
        self.pass_time(0.0)
        self.loop.close()

    def _sealed_card(self, request_id: str, account_id: str) -> SealedCard:
        """As an ingress seals it."""
        return _SEALING_KEY.sealed(CARD, request_id, account_id, self.accounts.known[account_id].base_url)

    # --- workers ------------------------------------------------------------------------------------------------------
    def start_one(self) -> None:
        """A new worker, on the first host that has none."""
        host = next((host for host, running in enumerate(self.workers) if running is None), None)
        if host is not None:
            self.workers[host] = self._started(host)

    def _started(self, host: int) -> Running:
        process = Process(f"host {host}", self.loop, self.clocks[host])
        log = ProcessLog(self.log, process)
        parts = WorkerParts(
            log=cast("Log", log),
            topics=TOPICS,
            publisher=log,
            recorder=self.store.recorder(process, host, self.ownership),
            directory=ProcessAccounts(self.accounts, process),
            unsealer=_VAULT,
            pms=cast("PmsDirectory", ProcessPmss(self.pmss, self.ownership, process)),
            clock=process.clock,
            settings=self.settings,
            signer=TRUSTING,
            cards=card_parts(self.store.card_keys(process, host), _SEALING_KEY),
        )
        return Running(process, Worker(parts))

    def tell_to_stop(self, place: int) -> None:
        """As by SIGTERM."""
        for running in self._at(place):
            running.told_to_stop = True
            running.stop.set()

    def put_out(self, place: int) -> None:
        """Out of its group, as if it had not been heard of; it comes back."""
        for member in self.log.members[place : place + 1]:
            self.log.put_out(member)

    def put_out_of_group(self, processes: Sequence[Process]) -> None:
        """As `put_out`, these."""
        for member in [each for each in self.log.members if each.process in processes]:
            self.log.put_out(member)

    def at(self, place: int) -> list[Process]:
        """The worker at that place among those that live, if one lives."""
        return [running.process for running in self._at(place)]

    def processes(self) -> list[Process]:
        """Of all workers that live."""
        return [running.process for running in self._living()]

    def pushing(self) -> list[Process]:
        """Of the workers that have a push under way."""
        return [process for process in self.processes() if process.pushes_under_way]

    def _living(self) -> list[Running]:
        return [running for running in self.workers if running is not None]

    def _at(self, place: int) -> list[Running]:
        living = self._living()
        return [living[place % len(living)]] if living else []

    def go_on(self, account_id: str, meanwhile: Meanwhile) -> None:
        """What comes in comes in, PMSs answer as told, time goes by."""
        self.clear_away()
        self.pmss.replies[account_id].extend(meanwhile.replies)
        self.pmss.look_replies[account_id].extend(meanwhile.look_replies)
        for process in self.at(meanwhile.place):
            for mishap in meanwhile.mishaps:
                process.mishaps.add(mishap)
        for order in meanwhile.orders:
            self.callers.submit(account_id, order)
        self.pass_time(meanwhile.seconds)

    def pass_time(self, seconds: float) -> None:
        """Let it go by."""
        self.loop.run_for(seconds)
        self.clear_away()

    def clear_away(self) -> None:
        """What is dead is buried, what has stopped is done with."""
        for host, running in enumerate(self.workers):
            if running is not None and running.process.crashed:
                running.process.bury()
                self.workers[host] = None
            elif running is not None and running.task.done():
                self.workers[host] = None
                error = running.task.exception()
                if error is not None or not running.told_to_stop:
                    self.failures.append(f"{running.process.name} ended by itself: {error!r}")
