"""Which submissions a command is about, as operators say it; and how one is shown in a list."""

from typing import Annotated, Any

import typer

from forwarder.cli.options import moment
from forwarder.cli.output import WrongUsage
from forwarder.operations.show.search import SubmissionQuery
from forwarder.process.clock import SystemClock
from forwarder.reservation.outcome import Status
from forwarder.store.lists.port import SubmissionSummary

StatusOption = Annotated[
    str | None,
    typer.Option(
        "--status", help="Only of this status, such as PENDING, or of several, with commas. By default of all."
    ),
]
AccountOption = Annotated[str | None, typer.Option("--account", help="Only of this integration account.")]
WorkspaceOption = Annotated[str | None, typer.Option("--workspace", help="Only of this workspace.")]
ReasonOption = Annotated[
    str | None,
    typer.Option(
        "--reason", help="Only those whose last try ended for this reason, or that have a problem of this code."
    ),
]
OlderThanOption = Annotated[
    str | None,
    typer.Option("--older-than", help="Only those accepted before then: an age such as 30m, 2h, 7d, or ISO 8601."),
]
TransactionOption = Annotated[
    str | None, typer.Option("--transaction-id", help="Only those with this transactionId of their caller's.")
]
GuestOption = Annotated[
    str | None,
    typer.Option("--guest", help="Only those of this guest: words of the name or e-mail address, or a phone number."),
]
PmsIdOption = Annotated[str | None, typer.Option("--pms-id", help="Only what the PMS has under this identifier.")]
PropertyOption = Annotated[str | None, typer.Option("--property", help="Only of this property.")]


def query_from(
    *,
    status: str | None,
    account: str | None,
    workspace: str | None,
    reason: str | None,
    older_than: str | None,
    transaction_id: str | None,
    guest: str | None,
    pms_id: str | None,
    property_id: str | None,
) -> SubmissionQuery:
    """What these options ask for. Raises `WrongUsage`."""
    texts = {"--guest": guest, "--pms-id": pms_id, "--transaction-id": transaction_id, "--reason": reason}
    for option, text in texts.items():
        if text is not None and not text.strip():
            raise WrongUsage(f"{option} takes a text that is not empty.")
    return SubmissionQuery(
        frozenset(Status) if status is None else _statuses(status),
        account_id=account,
        workspace_id=workspace,
        property_id=property_id,
        reason=reason,
        accepted_before=None if older_than is None else moment(older_than, "--older-than", SystemClock().now()),
        transaction_id=transaction_id,
        guest=guest,
        pms_reservation_id=pms_id,
    )


def _statuses(text: str) -> frozenset[Status]:
    names = [name.strip().upper() for name in text.split(",")]
    wrong = [name for name in names if name not in Status.__members__]
    if wrong:
        raise WrongUsage(f"There is no status {wrong[0]!r}; there are: {', '.join(Status)}.")
    return frozenset(Status(name) for name in names)


def letter_id(summary: SubmissionSummary) -> str:
    """The id of the dead letter about its failure."""
    return f"{summary.request_id}.{summary.revision}"


def row(summary: SubmissionSummary) -> dict[str, Any]:
    """A submission in a list."""
    return {
        "id": summary.record_id,
        "requestId": summary.request_id,
        "workspace": summary.workspace_id,
        "account": summary.account_id,
        "status": summary.status.value,
        "propertyId": summary.property_id,
        "arrival": summary.arrival,
        "departure": summary.departure,
        "attempts": summary.attempts,
        "acceptedAt": summary.accepted_at,
        "dueAt": summary.due_at,
        "deadlineAt": summary.deadline_at,
        "reason": summary.reason,
        "problem": summary.problem_code,
        "pmsReservationId": summary.pms_reservation_id,
        "deadLetter": letter_id(summary) if summary.status is Status.FAILED else None,
    }
