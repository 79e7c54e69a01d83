"""Searching submissions in every workspace: the query, the options that give it, and a submission's row in a list."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from forwarder.operate.command import moment_if_given
from forwarder.operate.output import Failed, Shown, WrongUsage, picked
from forwarder.reservation.outcome import Status
from forwarder.reservation.submission import RequestIds
from forwarder.store.lists.port import SubmissionFilter, SubmissionSummary

if TYPE_CHECKING:
    from forwarder.store.lists.overview import Overview

_FIELDS: Final = (
    "id=record_id requestId workspace=workspace_id account=account_id status propertyId arrival departure attempts acceptedAt "
    "dueAt deadlineAt reason problem=problem_code pmsReservationId apiKeyId"
)

RequestId = Annotated[str, typer.Argument(metavar="REQUEST_ID", help="The requestId of its 202: rsv_….")]


@dataclass(frozen=True, slots=True)
class SubmissionQuery(SubmissionFilter):
    """Search criteria, combined with AND.

    `reason`: of the last try, or the code of the problem. `accepted_before` and `accepted_since`: moments.
    `guest`: words of the guest's name or e-mail address, in any case, or at least six digits of a phone number. `transaction_id`:
    the caller's `transactionId`. `accounts` and `transaction_keys` follow from the others, by `SubmissionSearch`.
    """

    accounts: Collection[str] = ()
    account_id: str | None = None
    workspace_id: str | None = None
    transaction_id: str | None = None


class SubmissionSearch:
    """Searches `overview`. `request_ids` fetches the keys for hashing transaction ids."""

    def __init__(self, overview: "Overview", request_ids: Callable[[], Awaitable[RequestIds]]) -> None:
        self._overview = overview
        self._request_ids = request_ids

    async def pages(
        self, query: SubmissionQuery, *, page: int, before: int | None = None
    ) -> AsyncGenerator[tuple[Sequence[SubmissionSummary], int | None], None]:
        """Pages of submissions that match `query` and have an id below `before`, newest first, at most `page` rows each. A page
        may be empty when one scan step finds no match. Each comes with the id to continue below, None at the end. Raises
        `StoreUnavailable`."""
        known = [] if query.account_id and not query.workspace_id else await self._overview.accounts(query.workspace_id)
        if query.account_id is not None:
            known = [query.account_id] if query.workspace_id is None or query.account_id in known else []
        keys = None
        if query.transaction_id is not None:
            ids = await self._request_ids()
            keys = {each: ids.transaction_key(each, query.transaction_id.strip()) for each in known}
        wanted, below = replace(query, accounts=known, transaction_keys=keys), before
        while True:
            found = await self._overview.search(wanted, limit=page, before=below)
            yield found.rows, found.next
            if found.next is None:
                return
            below = found.next

    async def newest(self, query: SubmissionQuery, limit: int) -> Sequence[SubmissionSummary]:
        """The newest `limit` that match. Raises `StoreUnavailable`."""
        found: list[SubmissionSummary] = []
        async for rows, _ in self.pages(query, page=limit):
            found += rows
            if len(found) >= limit:
                break
        return found[:limit]


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters, combined with AND."""

    status: Annotated[
        str | None,
        typer.Option(help="Only these statuses, comma-separated, such as PENDING. Default: all."),
    ] = None
    account: Annotated[str | None, typer.Option(help="Only of this integration account.")] = None
    workspace: Annotated[str | None, typer.Option(help="Only of this workspace.")] = None
    reason: Annotated[
        str | None,
        typer.Option(help="Only those whose last try ended for this reason, or that have a problem of this code."),
    ] = None
    older_than: Annotated[
        str | None,
        typer.Option(help="Only those accepted before then: an age such as 30m, 2h, 7d, or ISO 8601."),
    ] = None
    transaction_id: Annotated[str | None, typer.Option(help="Only those with this transactionId.")] = None
    guest: Annotated[
        str | None,
        typer.Option(help="Only those of this guest: words of the name or e-mail address, or a phone number."),
    ] = None
    pms_id: Annotated[str | None, typer.Option(help="Only the reservation with this identifier in the PMS.")] = None
    property_id: Annotated[str | None, typer.Option("--property", help="Only of this property.")] = None
    key: Annotated[str | None, typer.Option(help="Only those submitted with this API key: key_….")] = None
    newer_than: Annotated[
        str | None,
        typer.Option(help="Only those accepted since then: an age such as 30m, 2h, 7d, or ISO 8601."),
    ] = None

    def query(self) -> SubmissionQuery:
        texts = {
            "--guest": self.guest,
            "--pms-id": self.pms_id,
            "--transaction-id": self.transaction_id,
            "--reason": self.reason,
            "--key": self.key,
        }
        for option, text in texts.items():
            if text is not None and not text.strip():
                raise WrongUsage(f"{option} must not be empty.")
        names = [*Status] if self.status is None else [name.strip().upper() for name in self.status.split(",")]
        if wrong := [name for name in names if name not in Status.__members__]:
            raise WrongUsage(f"There is no status {wrong[0]!r}; there are: {', '.join(Status)}.")
        return SubmissionQuery(
            statuses=frozenset(map(Status, names)),
            account_id=self.account,
            workspace_id=self.workspace,
            property_id=self.property_id,
            reason=self.reason,
            accepted_before=moment_if_given(self.older_than, "--older-than"),
            accepted_since=moment_if_given(self.newer_than, "--newer-than"),
            transaction_id=self.transaction_id,
            guest=self.guest,
            pms_reservation_id=self.pms_id,
            api_key_id=self.key,
        )


def not_found(request_id: str) -> Failed:
    """The failure of a command that names a submission which no worker has ingested."""
    return Failed(f"submission {request_id} not found; if it was accepted moments ago, try again shortly")


def status_after(request_id: str, status: Status, following: str) -> Shown:
    """A submission's status after a repair, and what happens next."""
    result = {"requestId": request_id, "status": status.value, "next": following}
    return Shown(result, f"{request_id} is {status.value}. {following}")


def letter_id(summary: SubmissionSummary) -> str:
    """The id of the dead letter about its failure."""
    return f"{summary.request_id}.{summary.revision}"


def row(summary: SubmissionSummary) -> dict[str, Any]:
    """A submission in a list."""
    dead_letter = letter_id(summary) if summary.status is Status.FAILED else None
    return picked(summary, _FIELDS) | {"deadLetter": dead_letter}
