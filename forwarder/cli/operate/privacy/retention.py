"""`forwarder retention …`: how long a workspace keeps its guests' data."""

from typing import Annotated, Any

import typer

from forwarder.assembly.commands.privacy import retention_of
from forwarder.cli.backend import with_backend
from forwarder.cli.output import AsJson, WrongUsage, say, show_json, show_rows
from forwarder.tenancy.port import MAX_DAYS, MAX_DELIVERY_DAYS, RetentionPolicy

_FOR_EVER = "forever"
_COLUMNS = ("workspace", "reservations", "deliveries", "deadLetters")
_Workspace = Annotated[str, typer.Argument(metavar="WORKSPACE", help="The workspace.")]


def commands() -> typer.Typer:
    """set, show"""
    group = typer.Typer(help="How long workspaces keep their guests' data.", no_args_is_help=True)
    group.command("set")(change)
    group.command("show")(show)
    return group


def change(
    workspace: _Workspace,
    reservations: Annotated[
        str | None,
        typer.Option(
            metavar="DAYS",
            help="Days after the guest of a confirmed reservation left, or after it was rejected or cancelled; or forever.",
        ),
    ] = None,
    deliveries: Annotated[
        int | None,
        typer.Option(
            min=0, max=MAX_DELIVERY_DAYS, metavar="DAYS", help="Days after a webhook delivery ended, 30 at most."
        ),
    ] = None,
    dead_letters: Annotated[
        str | None,
        typer.Option(metavar="DAYS", help="Days after a submission failed, for which it can be replayed; or forever."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set the number of days after which a workspace's guests' data is removed. Workers start within a quarter of an hour."""
    given = {"reservation_days": ("--reservations", reservations), "dead_letter_days": ("--dead-letters", dead_letters)}
    changes = {name: _days(option, text) for name, (option, text) in given.items() if text is not None}
    changes |= {} if deliveries is None else {"delivery_days": deliveries}
    if not changes:
        raise WrongUsage("Say what is to change: --reservations, --deliveries or --dead-letters.")
    policy = with_backend(lambda backend: retention_of(backend).set(workspace, changes))
    if as_json:
        show_json(_row(policy))
    else:
        say(f"Workspace {workspace} keeps {_in_words(policy)}.")


def show(
    workspace: Annotated[str | None, typer.Argument(metavar="WORKSPACE", help="The workspace. By default all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the number of days after which guests' data is removed."""
    policies = with_backend(lambda backend: retention_of(backend).policies(workspace))
    rows = [_row(policy) for policy in policies]
    if not as_json:
        rows = [{name: _FOR_EVER if days is None else days for name, days in row.items()} for row in rows]
    show_rows(rows, _COLUMNS, as_json=as_json)


def _days(option: str, text: str) -> int | None:
    if text == _FOR_EVER:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_DAYS)) and int(text) <= MAX_DAYS):
        raise WrongUsage(f"{option} takes whole days, 0 to {MAX_DAYS:,}, or {_FOR_EVER}; it is {text!r}.")
    return int(text)


def _row(policy: RetentionPolicy) -> dict[str, Any]:
    return {
        "workspace": policy.workspace_id,
        "reservations": policy.reservation_days,
        "deliveries": MAX_DELIVERY_DAYS if policy.delivery_days is None else policy.delivery_days,
        "deadLetters": policy.dead_letter_days,
    }


def _in_words(policy: RetentionPolicy) -> str:
    days = {
        "finished reservations' guests": policy.reservation_days,
        "ended deliveries": MAX_DELIVERY_DAYS if policy.delivery_days is None else policy.delivery_days,
        "failed submissions": policy.dead_letter_days,
    }
    return ", ".join(f"{what} {_FOR_EVER if kept is None else f'for {kept:,} days'}" for what, kept in days.items())
