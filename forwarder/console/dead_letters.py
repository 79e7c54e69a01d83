"""Dead letters, grouped by account and class; and replaying them, one or a group, with a preview and progress."""

import asyncio
import secrets
from collections import Counter, OrderedDict
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

import structlog

from forwarder.console.guard import Visit
from forwarder.console.responses import Go, RenderedPage, address, moment_of
from forwarder.console.service import ConsoleParts, Recent
from forwarder.operate.submissions.dead_letters import (
    Letter,
    LetterFilter,
    LetterState,
    Replay,
    ReplayPlan,
    letters_of,
    plan_replay,
)
from forwarder.process.loops import Where, contained
from forwarder.store.deployment import BacklogReader
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import NotKnown
from forwarder.topics.port import LogUnavailable

_PER_SECOND: Final = 50.0
_ROWS: Final = 100

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


class DeadLetterPages:
    def __init__(self, parts: ConsoleParts) -> None:
        self._backend, self._signer = parts.backend, parts.signer
        self._letters = letters_of(parts.backend)
        self._recent = Recent(lambda: self._letters.find(LetterFilter()), parts.backend.clock)
        """Cached: reading ten thousand letters takes a second or more."""
        self._runs: OrderedDict[str, _Run] = OrderedDict()

    async def groups(self, visit: Visit) -> RenderedPage:
        wanted = _wanted(visit.query("account"), visit.query("class"))
        filters = {"account": wanted.account or "", "failure_class": wanted.failure_class or ""}
        if (letters := await self._recent.within(0.2)) is None:  # the counts by the store's index, until they are read
            failed = [
                each
                for each in await BacklogReader(self._backend.engine).failed()
                if wanted.account in {None, each.account_id} and wanted.failure_class in {None, each.failure_class}
            ]
            failed.sort(key=lambda each: (-each.count, each.account_id))
            again = address("/dead-letters", account=wanted.account, **{"class": wanted.failure_class})
            return RenderedPage("dead_letters_counted.html", {**filters, "failed": failed, "again": again})
        waiting = [each for each in letters if each[1] is not LetterState.REPLAYED]
        found = [(each, state) for each, state in waiting if wanted.includes(each)]
        alike: dict[tuple[str, str], list[tuple[Letter, LetterState]]] = {}
        for letter, state in found:
            alike.setdefault((letter.account, letter.failure_class), []).append((letter, state))
        groups = []
        for (account, failure_class), them in sorted(alike.items(), key=lambda each: (-len(each[1]), each[0][0])):
            group = {"account": account, "failure_class": failure_class, "states": Counter(state for _, state in them)}
            moments = [letter.set_aside_at for letter, _ in them]
            reasons = dict.fromkeys(letter.reason for letter, _ in them)
            groups.append({**group, "reasons": reasons, "oldest": min(moments), "newest": max(moments)})
        values = {"groups": groups, "letters": found[:_ROWS], "total": len(found), "age": self._recent.age_seconds}
        replayable = (LetterState.OPEN, LetterState.CARD_GONE, LetterState.UNDECODABLE)
        values |= {**filters, "replayable": replayable, "open": LetterState.OPEN}
        return RenderedPage("dead_letters.html", values)

    async def preview(self, visit: Visit) -> RenderedPage:
        selection = {name: visit.query(name) for name in ("id", "account", "class")}
        wanted = _wanted(selection["account"], selection["class"], selection["id"])
        letters = [each for each in await self._recent.get() if wanted.includes(each[0])]
        plan = plan_replay(letters, by_id=bool(wanted.ids))
        if plan.chosen:  # only what is shown is replayed
            newest = max(letter.set_aside_at for letter, _ in plan.chosen)
            selection["until"] = (newest + timedelta(microseconds=1)).isoformat()
        values = {"chosen": plan.chosen[:_ROWS], "count": len(plan.chosen), "passed_over": plan.passed_over}
        return RenderedPage("replay_preview.html", {**values, "selection": selection, "per_second": _PER_SECOND})

    async def replay(self, visit: Visit) -> Go:
        form = visit.form
        wanted = _wanted(form.text("account"), form.text("class"), form.text("id"))
        wanted = replace(wanted, until=moment_of(form.text("until")))
        plan = plan_replay(await self._letters.find(wanted), by_id=bool(wanted.ids))
        if not plan.chosen:
            return Go(address("/dead-letters"), "None of these can be put back now; nothing was changed.")
        run, run_id = _Run(len(plan.chosen)), secrets.token_hex(8)
        # In the context of this request, so that the audit trail has the operator.
        run.task = asyncio.create_task(self._run(run, plan))
        self._runs[run_id] = run
        if len(self._runs) > 100:  # noqa: PLR2004 - those kept
            self._runs.popitem(last=False)
        return Go(address(f"/dead-letters/replays/{run_id}"))

    async def progress(self, visit: Visit) -> RenderedPage:
        return RenderedPage("replay.html", {"run": self._known(visit)})

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
            safe = "The last few may or may not be back; replaying them again is safe."
            run.trouble = f"The log or the database is down. {safe}"
            _log.warning("console.replay_failed", put_back=run.put_back, selected=run.selected, error=str(error))
        except Exception as error:  # noqa: BLE001 - the page shows it; the other replays go on
            run.trouble = f"It ended early. {contained(Where.CONSOLE, error)}. Replaying the last few again is safe."
        finally:
            self._recent.forget()

    def _known(self, visit: Visit) -> _Run:
        if (run := self._runs.get(visit.request.path_params["id"])) is None:
            raise NotKnown("This process has no such replay. Its result is on the audit trail.")
        return run


def _wanted(account: str, failure_class: str, letter_id: str = "") -> LetterFilter:
    return LetterFilter([letter_id] if letter_id else [], account or None, failure_class or None)
