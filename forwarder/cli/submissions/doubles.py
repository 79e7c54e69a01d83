"""`forwarder doubles …`: reservations that a PMS shows twice under one reference."""

from typing import Annotated

import typer

from forwarder.assembly.backend import Backend
from forwarder.assembly.commands.probe import open_doubles
from forwarder.cli.backend import with_backend
from forwarder.cli.output import AsJson, Failed, say, show_json, show_rows
from forwarder.cli.submissions.bulk import Yes, agreed
from forwarder.operations.repair.doubles import NotCancelled
from forwarder.store.lists.port import AskedFor

_RequestId = Annotated[str, typer.Argument(metavar="REQUEST_ID", help="The submission: rsv_….")]
_COLUMNS = ("requestId", "account", "pmsReservationId", "others", "property", "arrival", "departure")


def commands() -> typer.Typer:
    """list, cancel"""
    group = typer.Typer(help="Reservations that a PMS shows twice under one reference.", no_args_is_help=True)
    group.command("list")(list_doubles)
    group.command("cancel")(cancel)
    return group


def list_doubles(as_json: AsJson = False) -> None:
    """List submissions for which the PMS shows a second reservation under the same reference, newest first."""
    found = with_backend(lambda backend: backend.overview.doubled())
    show_rows([_row(each) for each in found], _COLUMNS, as_json=as_json)


def cancel(
    request_id: _RequestId,
    pms_reservation_id: Annotated[str, typer.Argument(metavar="PMS_ID", help="The reservation to cancel in the PMS.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Cancel the other reservation in the PMS, after showing it. The reservation that confirmed the submission stays."""

    async def run(backend: Backend) -> None:
        async with open_doubles(backend) as doubles:
            asked = await doubles.of(request_id)
            if not as_json:
                say(
                    f"{asked.request_id}, account {asked.account_id}: property {asked.reservation['propertyId']}, "
                    f"{asked.reservation['arrivalDate']} to {asked.reservation['departureDate']}. It is confirmed as "
                    f"{asked.pms_reservation_id}, which stays; {pms_reservation_id} is to be cancelled."
                )
            agreed(f"Cancel {pms_reservation_id} in the PMS?", yes=yes)
            await doubles.cancel(request_id, pms_reservation_id)

    try:
        with_backend(run)
    except NotCancelled as error:
        raise Failed(str(error)) from error
    if as_json:
        show_json({"requestId": request_id, "cancelled": pms_reservation_id})
    else:
        say(f"{pms_reservation_id} is cancelled in the PMS.")


def _row(asked: AskedFor) -> dict[str, object]:
    return {
        "requestId": asked.request_id,
        "account": asked.account_id,
        "pmsReservationId": asked.pms_reservation_id,
        "others": ", ".join(asked.doubles),
        "property": asked.reservation["propertyId"],
        "arrival": asked.reservation["arrivalDate"],
        "departure": asked.reservation["departureDate"],
    }
