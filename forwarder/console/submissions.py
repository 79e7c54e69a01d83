"""Submissions: search, history, and settling, cancelling or retrying one."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from pydantic_core import from_json

from forwarder.console.guard import Form, Visit
from forwarder.console.responses import NO_SUCH_ACTION, Go, RenderedPage, address, moment_of
from forwarder.console.service import ConsoleParts
from forwarder.http.parameters import LARGEST_ID, positive
from forwarder.operate.submissions import bulk
from forwarder.operate.submissions.look_up import LookedUp, look_up_in_pms
from forwarder.operate.submissions.search import History, SubmissionSearch, history_of
from forwarder.operate.submissions.settle import NotInDoubt, OperatorFinding, Repair, decide
from forwarder.process.clock import iso
from forwarder.process.supervision import Stop
from forwarder.reservation.outcome import MAX_REASON, Status
from forwarder.reservation.record import anonymous_record
from forwarder.store.delivery_queue import Deliveries
from forwarder.store.lists.port import SubmissionQuery, SubmissionSummary
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import NotKnown

_ROWS: Final = 50
_MOST: Final = 1_000
"""How many submissions one bulk action changes; it can be repeated."""
_BULK: Final = {"retry": "made due; workers come to them within seconds", "cancel": "asked to be cancelled"}
"""The bulk actions, and what was done."""
_FIELDS: Final = "account workspace property pms transaction guest reason status since before".split()


class SubmissionPages:
    def __init__(self, parts: ConsoleParts) -> None:
        self._backend = backend = parts.backend
        self._repair = Repair(backend.repairs, backend.clock, backend.audit)
        self._cancellations = bulk.Cancellations(backend, parts.signer)

    async def search(self, visit: Visit) -> RenderedPage | Go:
        if request_id := visit.query("id"):
            return Go(address(f"/submissions/{request_id}"))
        given = {name: visit.query(name) for name in _FIELDS}
        query, problem = _query(given)
        below = positive(visit.query("below"), LARGEST_ID)
        rows, following = ([], None) if problem else await self._page_of(query, below)
        more = None if following is None else address("/submissions", **given, below=following)
        go_on = None if more is None or rows or visit.query("stay") else more
        stay = address("/submissions", **given, below=visit.query("below"), stay=1)
        every = {} if query == SubmissionQuery() else {do: address("/bulk", do=do, **given) for do in _BULK}
        values = {"given": given, "statuses": list(Status), "problem": problem, "rows": rows, "more": more}
        looked_back_to = None if following is None else await self._backend.overview.accepted_at(following)
        values |= {"every": every, "go_on": go_on, "stay": stay, "looked_back_to": looked_back_to}
        return RenderedPage("submissions.html", values)

    async def preview(self, visit: Visit) -> RenderedPage:
        """What an action would do with all submissions that match a search."""
        given = {name: visit.query(name) for name in _FIELDS}
        found, whole, problem = await self._matches(given, None)
        do = visit.query("do")
        if do not in _BULK:
            problem = "There is no such action."
        plan: bulk.Plan[SubmissionSummary] | bulk.Plan[str]
        plan = bulk.plan_cancel(found) if do == "cancel" else bulk.plan_retry(found, now=iso(self._backend.clock.now()))
        chosen = {each if isinstance(each, str) else each.request_id for each in plan.chosen}
        alike = bulk.groups_of([each for each in found if each.request_id in chosen])
        groups = Counter(tuple(each.items()) for each in alike).most_common()
        values: dict[str, Any] = {"given": given, "do": do, "problem": problem, "whole": whole, "most": _MOST}
        values |= {"count": len(chosen), "ids": " ".join(sorted(chosen)), "already": len(plan.settled)}
        values["refused"] = Counter(plan.refused.values()).most_common()
        values |= {"groups": [(dict(group), count) for group, count in groups], "longest_reason": MAX_REASON}
        return RenderedPage("bulk.html", {**values, "below": found[0].id + 1 if found else ""})

    async def run_bulk(self, visit: Visit) -> Go:
        """Does it, with those that matched when the preview was shown and still match."""
        given, form, backend = {name: visit.form.text(name) for name in _FIELDS}, visit.form, self._backend
        back, do, why = address("/submissions", **given), form.text("do"), form.text("why")
        below = positive(form.text("below"), LARGEST_ID)
        found, _, problem = await self._matches(given, below)
        shown = set(form.text("ids").split())
        found = [each for each in found if each.request_id in shown]
        if problem is not None or below is None or do not in _BULK:
            return Go(back, f"Nothing was changed: {problem or 'there is no such action.'}")
        if len(why) > MAX_REASON or "\0" in why:
            return Go(back, f"Nothing was changed: a reason has at most {MAX_REASON:,} characters, without U+0000.")
        if do == "retry":
            plan = bulk.plan_retry(found, now=iso(backend.clock.now()))
            outcome = await bulk.make_due(plan, backend.repairs, backend.clock, backend.audit, stop=Stop())
        else:
            outcome = await self._cancellations.run(bulk.plan_cancel(found), why or None, stop=Stop())
        said = f"{outcome.done:,} were {_BULK[do]}."
        if outcome.failed:
            said += f" {len(outcome.failed):,} could not be: {next(iter(outcome.failed.values()))}"
        if outcome.left:
            said += f" {outcome.left:,} were not tried: {outcome.outage}."
        return Go(back, said)

    async def _matches(
        self, given: Mapping[str, str], below: int | None
    ) -> tuple[Sequence[SubmissionSummary], bool, str | None]:
        query, problem = _query(given)
        if problem is not None or query == SubmissionQuery():
            return (), True, problem or "Search for some of them first."
        found, following = await self._page_of(query, below, rows=_MOST, seconds=10.0)
        return found, following is None, None

    async def in_doubt(self, visit: Visit) -> RenderedPage:
        account = visit.query("account")
        query = SubmissionQuery(statuses=frozenset({Status.IN_DOUBT}), account_id=account or None)
        rows, following = await self._page_of(query, positive(visit.query("below"), LARGEST_ID))
        more = None if following is None else address("/in-doubt", account=account, below=following)
        return RenderedPage("in_doubt.html", {"rows": rows, "more": more, "account": account})

    async def _page_of(
        self, query: SubmissionQuery, below: int | None, *, rows: int = _ROWS, seconds: float = 0.1
    ) -> tuple[Sequence[SubmissionSummary], int | None]:
        """Up to so many matches, found in about so many seconds, and where the next page continues, on its own or when asked to."""
        search = SubmissionSearch(self._backend.overview, self._backend.request_ids)
        found: list[SubmissionSummary] = []
        following: int | None = None
        began = self._backend.clock.monotonic()
        async with aclosing(search.pages(query, page=rows, before=below)) as pages:
            async for some, next_below in pages:
                found += some
                following = next_below
                if len(found) >= rows or self._backend.clock.monotonic() - began > seconds:
                    break
        if len(found) > rows:
            return found[:rows], found[rows - 1].id
        return found, following

    async def act(self, visit: Visit) -> Go | RenderedPage:
        request_id, form, said = visit.request.path_params["request_id"], visit.form, NO_SUCH_ACTION
        match form.text("do"):
            case "guest":
                # Viewing a guest is audited like any other operation.
                async with self._backend.audit.operation("submission.show_guest", target=request_id):
                    return await self.show(visit, guest=True)
            case "look_up":
                return await self.show(visit, looked_up=await look_up_in_pms(self._backend, request_id))
            case "settle":
                said = await self._settle(request_id, form)
            case "retry":
                said = await self._retry(request_id)
            case "cancel":
                said = await self._cancel(request_id, form.text("reason"))
        return Go(address(f"/submissions/{request_id}"), said)

    async def show(self, visit: Visit, *, guest: bool = False, looked_up: LookedUp | None = None) -> RenderedPage:
        history = await self._find(visit.request.path_params["request_id"])
        summary = history.summary
        record: Mapping[str, Any] = from_json(history.stored.record)
        if not guest:  # without the members that anonymizing blanks
            kept = anonymous_record(record).items()
            record = {name: each for name, each in kept if name not in {"primaryGuest", "problem"}}
        account = await self._backend.directory.account(summary.account_id)
        letter_id = f"{summary.request_id}.{summary.revision}" if summary.status is Status.FAILED else None
        values = {"summary": summary, "stored": history.stored, "steps": history.steps(), "record": record}
        values |= {"guest": guest, "looked_up": looked_up, "longest_reason": MAX_REASON}
        return RenderedPage("submission.html", {**values, "account": account, "letter_id": letter_id})

    async def _find(self, request_id: str) -> History:
        found = await history_of(request_id, self._backend.overview, Deliveries(self._backend.engine))
        if found is None:
            raise NotKnown(f"Submission {request_id!r} not found. If it was accepted moments ago, try again shortly.")
        return found

    async def _settle(self, request_id: str, form: Form) -> str:
        finding, text, backend = form.text("finding"), form.text("text")[:500], self._backend
        if finding in {"confirmed", "rejected"} and not text:
            return "Nothing was changed: say under which identifier the PMS has it, or why it is given up."
        if finding not in set(OperatorFinding):
            return "Nothing was changed: say what was found in the PMS."
        try:
            await decide(self._repair, backend.overview, backend.directory, request_id, OperatorFinding(finding), text)
        except NotInDoubt:
            return "Nothing was changed: it is no longer in doubt, or a worker was just looking for it."
        return "It is settled. A worker publishes its result, or pushes it again, within half a minute."

    async def _retry(self, request_id: str) -> str:
        summary, backend = (await self._find(request_id)).summary, self._backend
        plan = bulk.plan_retry([summary], now=iso(backend.clock.now()))
        if plan.refused:
            return f"Nothing was changed: {summary.status.value}, and no worker will come to it by itself."
        outcome = await bulk.make_due(plan, backend.repairs, backend.clock, backend.audit, stop=Stop())
        if outcome.outage is not None:
            raise StoreUnavailable(outcome.outage)
        return "A worker comes to it within seconds." if outcome.done else "It is due already, or a worker has it."

    async def _cancel(self, request_id: str, reason: str) -> str:
        if len(reason) > MAX_REASON or "\0" in reason:
            return f"Nothing was changed: a reason has at most {MAX_REASON:,} characters, and not the character U+0000."
        try:
            status = await self._cancellations.request(request_id, reason or None)
        except bulk.CannotCancel as error:
            return f"Nothing was changed: {error}"
        if status is None:
            return "Nothing was changed: submission not found."
        done = status is Status.CANCELLED
        return "It is cancelled already." if done else "A worker cancels it, within half a minute."


def _query(given: Mapping[str, str]) -> tuple[SubmissionQuery, str | None]:
    """The query that a form gives, and what is wrong with it."""
    status, since, before = given["status"], moment_of(given["since"]), moment_of(given["before"])
    wrong_times = [given[name] for name, at in (("since", since), ("before", before)) if given[name] and at is None]
    problem = None
    if any("\0" in text for text in given.values()):
        problem = "No stored text contains the character U+0000."
    elif status and status not in set(Status):
        problem = f"There is no status {status!r}."
    elif wrong_times:
        problem = f"{wrong_times[0]!r} is not a time: write one in UTC as 2031-12-31T12:00."
    query = SubmissionQuery(
        statuses=frozenset({Status(status)} if status in set(Status) else Status),
        account_id=given["account"] or None,
        workspace_id=given["workspace"] or None,
        property_id=given["property"] or None,
        reason=given["reason"] or None,
        transaction_id=given["transaction"] or None,
        guest=given["guest"] or None,
        pms_reservation_id=given["pms"] or None,
        accepted_since=since,
        accepted_before=before,
    )
    return query, problem
