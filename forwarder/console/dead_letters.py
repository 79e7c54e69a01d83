"""Dead letters, grouped by account and class; and replaying them, one or a group, with a preview and progress."""

import asyncio
import secrets
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import structlog

from forwarder.console.guard import Visit
from forwarder.console.responses import Go, Page, address, moment_of
from forwarder.console.service import ConsoleParts, Recent
from forwarder.operate.submissions.dead_letters import Letter, LetterFilter, LetterState, letters_of
from forwarder.operate.submissions.replay import Replay, ReplayPlan, plan_replay
from forwarder.process.containment import Where, contained
from forwarder.store.deployment import BacklogReader
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import NotKnown
from forwarder.topics.port import LogUnavailable

_PER_SECOND: Final = 50.0
_ROWS: Final = 100
_PATIENCE_SECONDS: Final = 0.2
_KEPT_RUNS: Final = 100
_REPLAYABLE: Final = (LetterState.OPEN, LetterState.CARD_GONE, LetterState.UNDECODABLE)

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Run:
    """A running or finished replay. `trouble`: why it failed."""

    selected: int
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    put_back: int = 0
    task: asyncio.Task[None] | None = None
    trouble: str | None = None

    @property
    def under_way(self) -> bool:
        return self.task is not None and not self.task.done()


@dataclass(slots=True)
class _Group:
    account: str
    failure_class: str
    states: Counter[LetterState] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    oldest: datetime | None = None
    newest: datetime | None = None

    def add(self, letter: Letter, state: LetterState) -> None:
        self.states[state] += 1
        self.reasons[letter.reason] += 1
        self.oldest = min(self.oldest or letter.set_aside_at, letter.set_aside_at)
        self.newest = max(self.newest or letter.set_aside_at, letter.set_aside_at)


class DeadLetterPages:
    """Failed submissions and unreadable messages."""

    def __init__(self, parts: ConsoleParts) -> None:
        self._backend, self._signer = parts.backend, parts.signer
        self._letters = letters_of(parts.backend)
        self._recent = Recent(lambda: self._letters.find(LetterFilter()), parts.backend.clock)
        """Cached: reading ten thousand letters takes a second or more."""
        self._runs: OrderedDict[str, _Run] = OrderedDict()

    async def groups(self, visit: Visit) -> Page:
        wanted = _wanted(visit.query("account"), visit.query("class"))
        filters = {"account": wanted.account or "", "failure_class": wanted.failure_class or ""}
        letters = await self._recent.within(_PATIENCE_SECONDS)
        if letters is None:
            return await self._counts(wanted, filters)
        waiting = [each for each in letters if each[1] is not LetterState.REPLAYED]
        found = [(each, state) for each, state in waiting if wanted.includes(each)]
        groups: dict[tuple[str, str], _Group] = {}
        for letter, state in found:
            key = (letter.account, letter.failure_class)
            groups.setdefault(key, _Group(*key)).add(letter, state)
        ordered = sorted(groups.values(), key=lambda each: (-sum(each.states.values()), each.account))
        values = {"groups": ordered, "letters": found[:_ROWS], "total": len(found), "age": self._recent.age_seconds}
        return Page("dead_letters.html", {**values, **filters, "replayable": _REPLAYABLE, "open": LetterState.OPEN})

    async def _counts(self, wanted: LetterFilter, filters: Mapping[str, str]) -> Page:
        """The counts by the store's index, while the letters are still being read."""
        failed = [
            each
            for each in await BacklogReader(self._backend.engine).failed()
            if wanted.account in {None, each.account_id} and wanted.failure_class in {None, each.failure_class}
        ]
        failed.sort(key=lambda each: (-each.count, each.account_id))
        again = address("/dead-letters", account=wanted.account, **{"class": wanted.failure_class})
        return Page("dead_letters_counted.html", {**filters, "failed": failed, "again": again})

    async def preview(self, visit: Visit) -> Page:
        ids = [visit.query("id")] if visit.query("id") else []
        wanted = _wanted(visit.query("account"), visit.query("class"), ids)
        plan = plan_replay([each for each in await self._recent.get() if wanted.includes(each[0])], by_id=bool(ids))
        selection: dict[str, str] = {name: visit.query(name) for name in ("id", "account", "class")}
        if plan.chosen:  # only what is shown is replayed
            newest = max(letter.set_aside_at for letter, _ in plan.chosen)
            selection["until"] = (newest + timedelta(microseconds=1)).isoformat()
        values = {"chosen": plan.chosen[:_ROWS], "count": len(plan.chosen), "passed_over": plan.passed_over}
        return Page("replay_preview.html", {**values, "selection": selection, "per_second": _PER_SECOND})

    async def replay(self, visit: Visit) -> Go:
        form = visit.form
        ids = [form.text("id")] if form.text("id") else []
        wanted = _wanted(form.text("account"), form.text("class"), ids)
        wanted = replace(wanted, until=moment_of(form.text("until")))
        plan = plan_replay(await self._letters.find(wanted), by_id=bool(ids))
        if not plan.chosen:
            return Go(address("/dead-letters"), "None of these can be put back now; nothing was changed.")
        run, run_id = _Run(len(plan.chosen)), secrets.token_hex(8)
        # In the context of this request, so that the audit trail has the operator.
        run.task = asyncio.create_task(self._run(run, plan))
        self._runs[run_id] = run
        if len(self._runs) > _KEPT_RUNS:
            self._runs.popitem(last=False)
        return Go(address(f"/dead-letters/replays/{run_id}"))

    async def progress(self, visit: Visit) -> Page:
        return Page("replay.html", {"run": self._known(visit)})

    async def stop(self, visit: Visit) -> Go:
        self._known(visit).stop.set()
        return Go(visit.request.url.path, "It stops before the next letter.")

    async def _run(self, run: _Run, plan: ReplayPlan) -> None:
        def count(more: int) -> None:
            run.put_back += more

        backend, topic = self._backend, self._backend.settings.topics.requests
        try:
            async with backend.log.publisher() as publisher:
                replay = Replay(publisher, topic, self._signer, backend.clock, rate=_PER_SECOND, stop=run.stop)
                async with aclosing(self._letters.messages([letter for letter, _ in plan.chosen])) as messages:
                    await replay.run_audited(backend.audit, plan, messages, count)
        except (LogUnavailable, StoreUnavailable) as error:
            down = "The log or the database is down."
            run.trouble = f"{down} The last few may or may not be back; replaying them again is safe."
            _log.warning("console.replay_failed", put_back=run.put_back, selected=run.selected, error=str(error))
        except Exception as error:  # noqa: BLE001 - the page shows it; the other replays go on
            run.trouble = f"It ended early. {contained(Where.CONSOLE, error)}. Replaying the last few again is safe."
        finally:
            self._recent.forget()

    def _known(self, visit: Visit) -> _Run:
        run = self._runs.get(visit.request.path_params["id"])
        if run is None:
            raise NotKnown("This process has no such replay. Its result is on the audit trail.")
        return run


def _wanted(account: str, failure_class: str, ids: Sequence[str] = ()) -> LetterFilter:
    return LetterFilter(ids, account or None, failure_class or None)
