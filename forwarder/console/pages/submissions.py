"""Submissions: searching them, one with its history, and settling, cancelling it."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import from_json

from forwarder.console.guard import Form, Visit
from forwarder.console.parts import ConsoleParts
from forwarder.console.responses import Go, Page, address
from forwarder.operations.cancellation import Cancellations, CannotCancel
from forwarder.operations.settle import NotInDoubt, Repair, account_deadline_seconds
from forwarder.reservation.anonymous import anonymous_record
from forwarder.reservation.cancellation import MAX_REASON
from forwarder.reservation.outcome import Status
from forwarder.store.lists.port import StoredSubmission, SubmissionSummary
from forwarder.tenancy.port import NotKnown

_LONGEST_TEXT: Final = 500


class SubmissionPages:
    """What became of what was submitted."""

    def __init__(self, parts: ConsoleParts) -> None:
        self._parts = parts
        self._repair = Repair(parts.repairs, parts.clock, parts.audit)
        self._cancellations = Cancellations(
            parts.overview, parts.directory, parts.log, parts.topics.requests, parts.clock, parts.audit
        )

    async def search(self, visit: Visit) -> Page | Go:
        request_id = visit.query("id")
        if request_id:
            return Go(address(f"/submissions/{request_id}"))
        return Page("submissions.html", {})

    async def in_doubt(self, _visit: Visit) -> Page:
        return Page("submissions.html", {})

    async def show(self, visit: Visit) -> Page:
        return await self._page(visit, guest=False)

    async def act(self, visit: Visit) -> Go | Page:
        request_id, form = visit.request.path_params["request_id"], visit.form
        path = address(f"/submissions/{request_id}")
        match form.text("do"):
            case "guest":
                # Who looked at whom is on the trail, as any other operation is.
                async with self._parts.audit.operation("submission.show_guest", target=request_id):
                    return await self._page(visit, guest=True)
            case "settle":
                return Go(path, await self._settle(request_id, form))
            case "cancel":
                return Go(path, await self._cancel(request_id, form.text("reason")))
            case _:
                return Go(path, "There is no such action; nothing was changed.")

    async def _page(self, visit: Visit, *, guest: bool) -> Page:
        summary, stored = await self._find(visit.request.path_params["request_id"])
        record: Mapping[str, Any] = from_json(stored.record)
        account = await self._parts.directory.account(summary.account_id)
        values = {
            "summary": summary,
            "stored": stored,
            "account": account,
            "record": record if guest else anonymous_record(record),
            "guest": guest,
            "letter_id": f"{summary.request_id}.{summary.revision}" if summary.status is Status.FAILED else None,
            "longest_reason": MAX_REASON,
        }
        return Page("submission.html", values)

    async def _find(self, request_id: str) -> tuple[SubmissionSummary, StoredSubmission]:
        found = await self._parts.overview.find(request_id)
        if found is None:
            raise NotKnown(
                f"No submission {request_id!r} was taken in; if it was just accepted, a worker has yet to reach it."
            )
        return found

    async def _settle(self, request_id: str, form: Form) -> str:
        """What came of it, in words."""
        finding, text = form.text("finding"), form.text("text")[:_LONGEST_TEXT]
        if finding in {"confirmed", "rejected"} and not text:
            return "Nothing was changed: say under which identifier the PMS has it, or why it is given up."
        try:
            match finding:
                case "confirmed":
                    await self._repair.confirm(request_id, text)
                case "rejected":
                    await self._repair.reject(request_id, text)
                case "not_made":
                    seconds = await account_deadline_seconds(request_id, self._parts.overview, self._parts.directory)
                    await self._repair.push_again(request_id, deadline_seconds=seconds)
                case _:
                    return "Nothing was changed: say what was found in the PMS."
        except NotInDoubt:
            return "Nothing was changed: it is not in doubt any more, or a worker was just looking for it."
        return "It is settled. A worker publishes its result, or pushes it again, within half a minute."

    async def _cancel(self, request_id: str, reason: str) -> str:
        if len(reason) > MAX_REASON or "\0" in reason:
            return f"Nothing was changed: a reason has at most {MAX_REASON:,} characters, and not the character U+0000."
        try:
            status = await self._cancellations.request(request_id, reason or None)
        except CannotCancel as error:
            return f"Nothing was changed: {error}"
        if status is None:
            return "Nothing was changed: no such submission was taken in."
        return (
            "It is cancelled already." if status is Status.CANCELLED else "A worker cancels it, within half a minute."
        )
