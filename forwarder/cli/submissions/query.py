"""The options that select submissions; and a submission's row in a list."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from forwarder.cli.options import moment
from forwarder.cli.output import WrongUsage
from forwarder.operations.show.search import SubmissionQuery
from forwarder.process.clock import SystemClock
from forwarder.reservation.outcome import Status
from forwarder.store.lists.port import SubmissionSummary


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

    def query(self) -> SubmissionQuery:
        """The query for these options. Raises `WrongUsage`."""
        texts = {
            "--guest": self.guest,
            "--pms-id": self.pms_id,
            "--transaction-id": self.transaction_id,
            "--reason": self.reason,
        }
        for option, text in texts.items():
            if text is not None and not text.strip():
                raise WrongUsage(f"{option} must not be empty.")
        before = self.older_than
        return SubmissionQuery(
            frozenset(Status) if self.status is None else _statuses(self.status),
            account_id=self.account,
            workspace_id=self.workspace,
            property_id=self.property_id,
            reason=self.reason,
            accepted_before=None if before is None else moment(before, "--older-than", SystemClock().now()),
            transaction_id=self.transaction_id,
            guest=self.guest,
            pms_reservation_id=self.pms_id,
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
