"""`forwarder results …`: the results topic as it is written, for people and for pipes. Needs the log alone."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from forwarder.cli.backend import stop_on_signal, with_log
from forwarder.cli.moments import moment
from forwarder.cli.operate.result_events import Stretch, Wanted, print_events
from forwarder.cli.output import Failed, WrongUsage, while_read
from forwarder.process.clock import SystemClock
from forwarder.process.waiting import first_of
from forwarder.reservation.result import RESULT_TYPES
from forwarder.topics.port import Log

_BEGINNING, _END = "beginning", "end"


def commands() -> typer.Typer:
    """tail"""
    group = typer.Typer(help="Result events, as downstream services receive them.", no_args_is_help=True)
    group.command("tail")(tail)
    return group


def tail(
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHEN",
            help="beginning, end, a moment in ISO 8601, or an age such as 30m, 2h, 7d. "
            "[default: end; with --no-follow: beginning]",
        ),
    ] = None,
    account: Annotated[str | None, typer.Option(help="Only of this integration account.")] = None,
    workspace: Annotated[str | None, typer.Option(help="Only of this workspace.")] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="TYPE", help="Only of this type: reservation.confirmed.v1, or confirmed; repeatable."
        ),
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after so many events.")] = None,
    no_follow: Annotated[bool, typer.Option("--no-follow", help="End where the topic ended at the start.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each event as a CloudEvent in JSON, one a line.")
    ] = False,
) -> None:
    """Print result events as they come, until Ctrl-C: time, type, account, requestId, reservation, PMS id, problem.

    Those of one submission are in their order, and may come twice, with the same id; - stands for what there is not. It takes
    nothing from any consumer. What cannot be read is noted on standard error and passed over.
    """
    wanted = Wanted(account, workspace, _types(kind or ()), count)
    stretch = _stretch(start, follow=not no_follow)
    with_log(lambda log, topics: _tail(log, topics.results, stretch, wanted, as_json=as_json))


def _types(given: Sequence[str]) -> frozenset[str]:
    """The full names. Raises `WrongUsage`."""
    names = {known.split(".")[1]: known for known in RESULT_TYPES} | {known: known for known in RESULT_TYPES}
    if unknown := [each for each in given if each not in names]:
        raise WrongUsage(f"There is no type {unknown[0]!r}; there are: {', '.join(RESULT_TYPES)}.")
    return frozenset(names[each] for each in given)


def _stretch(start: str | None, *, follow: bool) -> Stretch:
    where = start or (_END if follow else _BEGINNING)
    if where == _END and not follow:
        raise WrongUsage("--no-follow from the end prints nothing: leave one of them out.")
    if where in {_BEGINNING, _END}:
        return Stretch(beginning=where == _BEGINNING, follow=follow)
    return Stretch(
        since=moment(where, "--from, where it is neither beginning nor end,", SystemClock().now()), follow=follow
    )


async def _tail(log: Log, topic: str, stretch: Stretch, wanted: Wanted, *, as_json: bool) -> None:
    """Until there are enough, or the end, or a signal. Raises `LogUnavailable`, `Failed`."""
    async with log.admin() as admin:
        if topic not in await admin.list():
            raise Failed(f"there is no topic {topic} yet: `forwarder topics create`, or `forwarder up`, makes it.")
    with stop_on_signal() as stop, while_read():
        printing = asyncio.ensure_future(print_events(log, topic, stretch, wanted, SystemClock(), as_json=as_json))
        await first_of(printing, stop.wait())
        if not printing.cancelled():
            printing.result()
