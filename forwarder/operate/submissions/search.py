"""Searching submissions in all workspaces; and the history of one, with its last fifty tries and thirty days of deliveries."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any

from pydantic_core import from_json
from typer import Argument, Option

from forwarder.operate import output
from forwarder.operate.command import Deployment, Limit, moment_if_given, open_deployment, require_known
from forwarder.operate.output import AsJson, Block, Failed, Grid, Printed, WrongUsage, listed, picked
from forwarder.process.clock import iso
from forwarder.reservation.outcome import Status
from forwarder.reservation.submission import RequestIds
from forwarder.store.deliveries import DeliveryEntry, DeliveryStatus
from forwarder.store.delivery_queue import Deliveries
from forwarder.store.lists.overview import Overview
from forwarder.store.lists.port import StoredSubmission, SubmissionQuery, SubmissionSummary

RequestId = Annotated[str, Argument(metavar="REQUEST_ID", help="The requestId of its 202: rsv_….")]


@dataclass(frozen=True, slots=True)
class SubmissionSearch:
    """Searches `overview`. `request_ids` fetches the keys for hashing transaction ids."""

    overview: Overview
    request_ids: Callable[[], Awaitable[RequestIds]]

    async def pages(
        self, query: SubmissionQuery, *, page: int, before: int | None = None
    ) -> AsyncGenerator[tuple[Sequence[SubmissionSummary], int | None], None]:
        """Pages of submissions that match `query` and have an id below `before`, newest first, of at most `page` rows; empty where
        a scan step found no match. Each has the id to continue below, None at the end. Raises `StoreUnavailable`."""
        known = [] if query.account_id and not query.workspace_id else await self.overview.accounts(query.workspace_id)
        if query.account_id is not None:
            known = [query.account_id] if query.workspace_id is None or query.account_id in known else []
        keys = None
        if query.transaction_id is not None:
            ids = await self.request_ids()
            transaction = query.transaction_id.strip().encode()
            keys = {each: ids.content_key(each, "transaction", transaction) for each in known}
        wanted, below = replace(query, accounts=known, transaction_keys=keys), before
        while True:
            rows, below = await self.overview.search(wanted, limit=page, before=below)
            yield rows, below
            if below is None:
                return

    async def newest(self, query: SubmissionQuery, limit: int) -> Sequence[SubmissionSummary]:
        """The newest `limit` that match. Raises `StoreUnavailable`."""
        found: list[SubmissionSummary] = []
        async for rows, _ in self.pages(query, page=min(limit, _PAGE)):
            found += rows
            if len(found) >= limit:
                break
        return found[:limit]


@dataclass(frozen=True, slots=True)
class SearchFilters:
    """Filters, combined with AND.

    status: Only these statuses, comma-separated, such as PENDING. Default: all.
    reason: Only those whose last try ended for this reason, or that have a problem of this code.
    older_than: Only those accepted before then: an age such as 30m, 2h, 7d, or ISO 8601.
    guest: Only those of this guest: words of the name or e-mail address, or a phone number.
    newer_than: Only those accepted since then: an age such as 30m, 2h, 7d, or ISO 8601."""

    status: str | None = None
    account: Annotated[str | None, Option(help="Only of this integration account.")] = None
    workspace: Annotated[str | None, Option(help="Only of this workspace.")] = None
    reason: str | None = None
    older_than: str | None = None
    transaction_id: Annotated[str | None, Option(help="Only those with this transactionId.")] = None
    guest: str | None = None
    pms_id: Annotated[str | None, Option(help="Only the reservation with this identifier in the PMS.")] = None
    property_id: Annotated[str | None, Option("--property", help="Only of this property.")] = None
    key: Annotated[str | None, Option(help="Only those submitted with this API key: key_….")] = None
    newer_than: str | None = None

    def query(self) -> SubmissionQuery:
        texts = {"--guest": self.guest, "--pms-id": self.pms_id, "--transaction-id": self.transaction_id}
        texts |= {"--reason": self.reason, "--key": self.key, "--account": self.account}
        texts |= {"--workspace": self.workspace, "--property": self.property_id}
        for option, text in texts.items():
            if text is not None and not text.strip():
                raise WrongUsage(f"{option} must not be empty.")
        names = [*Status] if self.status is None else [name.strip().upper() for name in self.status.split(",")]
        if wrong := [name for name in names if name not in Status.__members__]:
            raise WrongUsage(f"There is no status {wrong[0]!r}; there are: {', '.join(Status)}.")
        before = moment_if_given(self.older_than, "--older-than")
        since = moment_if_given(self.newer_than, "--newer-than")
        if before is not None and since is not None and since >= before:
            raise WrongUsage("--newer-than must be a time before --older-than.")
        return SubmissionQuery(
            statuses=frozenset(map(Status, names)),
            account_id=self.account,
            workspace_id=self.workspace,
            property_id=self.property_id,
            reason=self.reason,
            accepted_before=before,
            accepted_since=since,
            transaction_id=self.transaction_id,
            guest=self.guest,
            pms_reservation_id=self.pms_id,
            api_key_id=self.key,
        )


def not_found(request_id: str) -> Failed:
    """The failure of a command that names a submission which no worker has ingested."""
    return Failed(f"submission {request_id} not found; if it was accepted moments ago, try again shortly")


def status_after(request_id: str, status: Status, following: str) -> Printed:
    """A submission's status after a repair, and what happens next."""
    result = {"requestId": request_id, "status": status.value, "next": following}
    return Printed(result, f"{request_id} is {status.value}. {following}")


def row(summary: SubmissionSummary) -> dict[str, Any]:
    dead_letter = f"{summary.request_id}.{summary.revision}" if summary.status is Status.FAILED else None
    about = "id=record_id requestId workspace=workspace_id account=account_id status propertyId arrival departure"
    about += " attempts acceptedAt dueAt deadlineAt reason problem=problem_code pmsReservationId apiKeyId"
    return picked(summary, about) | {"deadLetter": dead_letter}


# --- the history of one ---


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """An event, `at` a time (ISO 8601). `outcome`: how it ended. `detail`: without card numbers. `planned`: yet to happen."""

    at: str
    what: str
    outcome: str | None = None
    reason: str | None = None
    detail: str | None = None
    seconds: float | None = None
    planned: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """A submission with its history. `unpublished`: revisions of its events that are not known to be on the log."""

    summary: SubmissionSummary
    stored: StoredSubmission
    unpublished: Sequence[int]
    deliveries: Sequence[DeliveryEntry]

    def steps(self) -> Sequence[HistoryStep]:
        """The timeline, earliest first; planned steps last."""
        return sorted(self._unordered(), key=lambda step: (step.planned, "" if step.planned else step.at))

    def _unordered(self) -> Iterator[HistoryStep]:
        summary, stored = self.summary, self.stored
        yield HistoryStep(summary.accepted_at, "accepted")
        yield HistoryStep(from_json(stored.record)["createdAt"], "stored")
        for tried in stored.attempts:
            seconds = tried.duration_ms / 1000
            yield HistoryStep(tried.started_at, tried.action, tried.outcome, tried.reason, tried.detail, seconds)
        if (asked := stored.cancellation) is not None:
            state = asked.status.value.lower()
            yield HistoryStep(asked.requested_at, "cancellation requested", state, detail=asked.reason)
        if stored.revision:
            code = None if stored.problem is None else stored.problem.get("code")
            published = "not published yet" if stored.revision in self.unpublished else "published"
            yield HistoryStep(stored.updated_at, stored.status.value, published, code)
        for delivery in self.deliveries:
            for posted in delivery.attempts:
                outcome = posted.failure if posted.status is None else f"HTTP {posted.status}"
                what, seconds = f"webhook {delivery.endpoint_id}", posted.ms / 1000
                yield HistoryStep(posted.at, what, outcome, detail=posted.detail, seconds=seconds)
        if summary.held:
            yield HistoryStep("", "a worker has it now", planned=True)
        elif summary.due_at is not None:
            step = {Status.PENDING: "try", Status.CONFIRMED: "cancellation"}.get(summary.status, "look-up")
            yield HistoryStep(summary.due_at, step, planned=True)
        elif summary.status is Status.IN_DOUBT:
            yield HistoryStep("", "waits for `forwarder submissions settle`", planned=True)
        if summary.status is Status.PENDING and summary.deadline_at is not None:
            yield HistoryStep(summary.deadline_at, "deadline", planned=True)
        for delivery in self.deliveries:
            if delivery.status is DeliveryStatus.PENDING and delivery.due_at is not None:
                yield HistoryStep(iso(delivery.due_at), f"webhook {delivery.endpoint_id}", planned=True)


async def history_of(request_id: str, overview: Overview, deliveries: Deliveries) -> History | None:
    """Of the submission with that request id, or the one that it duplicates; None if it was not ingested."""
    if (found := await overview.find(request_id)) is None:
        return None
    return History(*found, await overview.unpublished(found[0].id), await deliveries.about(found[0].request_id))


# --- the commands ---

_COLUMNS = ("acceptedAt", "status", "requestId", "account", "attempts", "reason", "dueAt", "pmsReservationId")
_PAGE = 500


async def list_submissions(*, filters: SearchFilters, limit: Limit = 20, as_json: AsJson = False) -> None:
    """Search submissions of any status, newest first; also REJECTED and FAILED ones, which callers' lists leave out.

    Filters are combined with AND. Filters other than account, status, property, PMS id and transaction scan the matching
    submissions, and can be slow."""
    query = filters.query()
    async with open_deployment() as backend:
        search = SubmissionSearch(backend.overview, backend.request_ids)
        with output.while_read():
            if not as_json:
                found = await search.newest(query, limit + 1)
                await require_known(backend, found, workspace=filters.workspace, account=filters.account)
                notes = output.more_than(limit) if len(found) > limit else ()
                listed([row(summary) for summary in found[:limit]], _COLUMNS, notes=notes).show(as_json=False)
                return
            # A page at a time: there may be more submissions than fit into memory.
            left, before = limit, "["
            async with aclosing(search.pages(query, page=min(limit, _PAGE))) as pages:
                async for rows, _ in pages:
                    for summary in rows[:left]:
                        output.show_lines([before + output.json_line(row(summary))])
                        before = ","
                    left -= len(rows)
                    if left <= 0:
                        break
            if before == "[":
                await require_known(backend, (), workspace=filters.workspace, account=filters.account)
            output.show_lines(["[]" if before == "[" else "]"])


async def show(backend: Deployment, request_id: RequestId) -> Printed:
    """Show one submission: its history, try by try, and what comes next; with --json also its record."""
    if (found := await history_of(request_id, backend.overview, Deliveries(backend.engine))) is None:
        raise not_found(request_id)
    summary, stored, record = found.summary, found.stored, from_json(found.stored.record)
    attempts = [picked(each, "number action startedAt durationMs outcome reason detail") for each in stored.attempts]
    about = row(summary) | {"attempts": attempts, "unpublishedEvents": list(found.unpublished)}
    if stored.evidence.words:
        about["evidence"] = stored.evidence.words
    if stored.cancellation is not None:
        about["cancellation"] = stored.cancellation.as_json()
    about["webhooks"] = [picked(each, "webhook=endpoint_id event=event_id status tries") for each in found.deliveries]
    made = "" if summary.pms_reservation_id is None else f", {summary.pms_reservation_id} in the PMS"
    room = "" if not record.get("roomId") else f", room {record['roomId']}"
    price = f"{record['totalPrice']} {record['currency']}".strip()
    steps = [_step_row(step, summary.accepted_at) for step in found.steps()]
    text: tuple[Block, ...] = (
        f"{summary.request_id} is {summary.status.value}{made}",
        f"account {summary.account_id}, workspace {summary.workspace_id}, property {summary.property_id}{room}",
        f"{summary.arrival} to {summary.departure}, {price}, {record['primaryGuest']['name'] or 'no guest'}",
        *stored.evidence.words,
        "",
        Grid(steps),
    )
    return Printed({**about, "record": record}, text)


def _step_row(step: HistoryStep, accepted_at: str) -> tuple[str, ...]:
    after = ""
    if step.at:
        seconds = (datetime.fromisoformat(step.at) - datetime.fromisoformat(accepted_at)).total_seconds()
        units = ((86400, "d"), (3600, "h"), (60, "min"))
        larger = (f"{seconds / unit:+.1f} {name}" for unit, name in units if abs(seconds) >= unit)
        after = next(larger, f"{seconds:+.3f} s")
    took = "" if step.seconds is None else f"{step.seconds:.3f} s"
    said = ": ".join(each for each in (step.reason, step.detail) if each)
    return (step.at, after, f"next: {step.what}" if step.planned else step.what, took, step.outcome or "", said)
