"""`forwarder webhook test|deliveries|delivery|resend|recover`: deliveries to a webhook, and sending them again."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from forwarder.assembly.backend import Backend
from forwarder.assembly.webhooks import webhooks_of
from forwarder.cli.backend import with_backend
from forwarder.cli.options import moment
from forwarder.cli.output import AsJson, Failed, WrongUsage, say, show_json, show_one, show_rows
from forwarder.notifier.api.actions import delivery_json
from forwarder.notifier.webhooks import EndpointDisabled, UnknownType
from forwarder.process.clock import SystemClock, iso
from forwarder.store.deliveries import DeliveryEntry, DeliveryStatus
from forwarder.tenancy.port import TooManyEndpoints
from forwarder.webhooks.port import BadTarget

EndpointId = Annotated[str, typer.Argument(metavar="ID", help="The webhook's identifier: whk_….")]
OfWorkspace = Annotated[str | None, typer.Option("--workspace", help="Only if it is this workspace's.")]


@contextmanager
def in_words() -> Iterator[None]:
    """Turns the block's errors into `WrongUsage`, if another command line would work, or into `Failed`."""
    try:
        yield
    except (BadTarget, UnknownType) as error:
        raise WrongUsage(str(error)) from error
    except (EndpointDisabled, TooManyEndpoints) as error:
        raise Failed(str(error)) from error


_COLUMNS = ("id", "createdAt", "type", "status", "tries", "dueAt", "last")
_DeliveryId = Annotated[int, typer.Argument(metavar="DELIVERY", help="The delivery's number in `webhook deliveries`.")]


def send_test(endpoint_id: EndpointId, workspace: OfWorkspace = None, as_json: AsJson = False) -> None:
    """Send an event of type webhook.test.v1 to one webhook, even if it does not subscribe to that type."""

    async def run(backend: Backend) -> int:
        return await (await webhooks_of(backend)).test(endpoint_id, workspace_id=workspace)

    with in_words():
        number = with_backend(run)
    if as_json:
        show_json({"id": endpoint_id, "deliveryId": number})
    else:
        say(f"On its way; `forwarder webhook delivery {endpoint_id} {number}` shows the result.")


def deliveries(
    endpoint_id: EndpointId,
    status: Annotated[str | None, typer.Option(help="Only those with this status, such as FAILED.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many, newest first.")] = 20,
    tried: Annotated[
        bool, typer.Option("--tried", help="Only those that were posted at least once: what its endpoint answers.")
    ] = False,
    workspace: OfWorkspace = None,
    as_json: AsJson = False,
) -> None:
    """List a webhook's deliveries of the last 30 days, newest first; every try with --json."""
    if status is not None and status.upper() not in DeliveryStatus.__members__:
        raise WrongUsage(f"There is no status {status!r}; there are: {', '.join(DeliveryStatus)}.")
    wanted = None if status is None else DeliveryStatus(status.upper())

    async def run(backend: Backend) -> list[dict[str, Any]]:
        hooks = await webhooks_of(backend)
        found = await hooks.deliveries(endpoint_id, workspace_id=workspace, status=wanted, limit=limit, tried=tried)
        return [delivery_json(entry) for entry in found]

    rows = with_backend(run)
    show_rows(rows if as_json else [{**row, "last": _last(row)} for row in rows], _COLUMNS, as_json=as_json)


def delivery(
    endpoint_id: EndpointId, delivery_id: _DeliveryId, workspace: OfWorkspace = None, as_json: AsJson = False
) -> None:
    """Show one delivery: its event, its status, every try."""

    async def run(backend: Backend) -> DeliveryEntry:
        return await (await webhooks_of(backend)).delivery(endpoint_id, delivery_id, workspace_id=workspace)

    show_one(delivery_json(with_backend(run)), as_json=as_json)


def resend(
    endpoint_id: EndpointId, delivery_id: _DeliveryId, workspace: OfWorkspace = None, as_json: AsJson = False
) -> None:
    """Send a delivery again, soon and under the same webhook-id, even if it succeeded."""

    async def run(backend: Backend) -> DeliveryEntry:
        return await (await webhooks_of(backend)).resend(endpoint_id, delivery_id, workspace_id=workspace)

    with in_words():
        entry = with_backend(run)
    if as_json:
        show_json(delivery_json(entry))
    else:
        say(f"Delivery {delivery_id} is sent again.")


def recover(
    endpoint_id: EndpointId,
    since: Annotated[str, typer.Option(help="Deliveries queued since then: ISO 8601, or an age such as 30m, 2h, 7d.")],
    workspace: OfWorkspace = None,
    as_json: AsJson = False,
) -> None:
    """Send all undelivered events again: those that failed, and those that were stopped."""
    after = moment(since, "--since", SystemClock().now())

    async def run(backend: Backend) -> int:
        return await (await webhooks_of(backend)).recover(endpoint_id, workspace_id=workspace, since=after)

    with in_words():
        count = with_backend(run)
    if as_json:
        show_json({"id": endpoint_id, "since": iso(after), "putBack": count})
    else:
        say(f"{count} sent again." if count else "There is nothing to send again.")


def _last(row: Mapping[str, Any]) -> str:
    """The result of the last try, in one word."""
    if not row["attempts"]:
        return ""
    attempt = row["attempts"][-1]
    return str(attempt["status"] or attempt["failure"])
