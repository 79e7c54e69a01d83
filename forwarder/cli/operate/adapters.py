"""`forwarder adapters …`: the kinds of PMS that this forwarder can talk to, and whether each keeps its word."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from forwarder.assembly.commands.conformance import CHECKS, Check, Result, Site, is_simulated, pause_for, results
from forwarder.assembly.pms_catalog import adapters, fields, mapping_of, pms_kinds, try_out
from forwarder.cli.options import credential_from, options_from
from forwarder.cli.output import AsJson, Failed, WrongUsage, progress, say, show_json, show_rows
from forwarder.observability.logging import configure_logging
from forwarder.pms.mapping.verdicts import after_checks
from forwarder.pms.port import BadOptions

_COLUMNS = ("kind", "after a doubt", "cancel", "at once", "requests", "known by", "from")
_MOST_CHOICES = 4
_SOON = timedelta(days=30)
_OPTION_COLUMNS = ("kind", "option", "type", "required", "description")


def commands() -> typer.Typer:
    """list, fields, try, check"""
    group = typer.Typer(help="Adapters: list the kinds of PMS, and check one.", no_args_is_help=True)
    group.command("list")(list_adapters)
    group.command("fields")(show_fields)
    group.command("try")(try_kind)
    group.command("check")(check)
    return group


def list_adapters(as_json: AsJson = False) -> None:
    """List the kinds of PMS: capabilities, request limits, and the options of their accounts."""
    configure_logging("critical", "auto")  # what could not be loaded is in the list
    rows = adapters()
    if as_json:
        show_json(list(rows))
        return
    there = [row for row in rows if "error" not in row]
    show_rows([_row(row) for row in there], _COLUMNS, as_json=False)
    options = [{"kind": row["kind"], **_option(option)} for row in there for option in row["options"]]
    if options:
        say("")
        show_rows(options, _OPTION_COLUMNS, as_json=False)
    if lost := [row for row in rows if "error" in row]:
        say("\nNot loaded:")
        show_rows(lost, ("kind", "from", "error"), as_json=False)


def show_fields(
    kind: Annotated[str, typer.Argument(help="The kind of PMS.")],
    option: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, an option of its accounts; repeatable.")] = None,
    options_file: Annotated[
        Path | None, typer.Option(help="Options in a file, JSON or TOML; or a mapping, YAML.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what becomes of each field of a reservation request: its name in the PMS, in the notes, or not sent and why."""
    _known(kind)
    try:
        rows = fields(kind, options_from(option, options_file))
    except BadOptions as error:
        raise WrongUsage(str(error)) from error
    show_rows(rows, ("field", "becomes"), as_json=as_json)


def try_kind(
    kind: Annotated[str, typer.Argument(help="The kind of PMS.")],
    base_url: Annotated[str | None, typer.Option(help="The PMS's address. By default the vendor's own.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, an option of its accounts; repeatable.")] = None,
    options_file: Annotated[
        Path | None, typer.Option(help="Options in a file, JSON or TOML; or a mapping, YAML.")
    ] = None,
    property_id: Annotated[str, typer.Option("--property", help="Property of the sample.")] = "5001",
    room_id: Annotated[str | None, typer.Option("--room", help="Room of the sample. By default the property.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the requests for a sample reservation: to create it, to look it up and to cancel it. Nothing is sent."""
    _known(kind)
    fields = {"propertyId": property_id, "roomId": property_id if room_id is None else room_id}
    try:
        tried = try_out(kind, base_url, options_from(option, options_file), fields)
    except BadOptions as error:
        raise WrongUsage(str(error)) from error
    if as_json:
        show_json(tried)
        return
    for request in tried["requests"]:
        say(f"# {request['step']}\n{request['method']} {request['url']}")
        for name, value in request["headers"].items():
            say(f"{name}: {value}")
        say("" if request["body"] is None else f"\n{json.dumps(request['body'], indent=2, ensure_ascii=False)}\n")
    for sentence in tried["assumed"]:
        say(f"Assumed: {sentence}")
    if tried["refused"] is not None:
        raise Failed(f"Nothing would be sent: {tried['refused']}")


def check(
    kind: Annotated[str, typer.Argument(help="The kind of PMS.")],
    base_url: Annotated[
        str | None, typer.Option(help="A test server or sandbox, where bookings are made. By default our simulator.")
    ] = None,
    credential_file: Annotated[
        Path | None, typer.Option(help="File with that PMS's credential; - is standard input.")
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, an option of its accounts; repeatable.")] = None,
    options_file: Annotated[
        Path | None, typer.Option(help="Options in a file, JSON or TOML; or a mapping, YAML.")
    ] = None,
    property_id: Annotated[
        str | None, typer.Option("--property", help="Property to book in. By default 5001 and up.")
    ] = None,
    room_id: Annotated[str | None, typer.Option("--room", help="Room to book in.")] = None,
    first_night: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="First night to book. By default in 30 days.")
    ] = None,
    calendar: Annotated[bool, typer.Option(help="Whether that PMS refuses nights that are booked already.")] = True,
    only: Annotated[list[str] | None, typer.Option("--check", help="Run only this check; repeatable.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run the conformance checks on an adapter. Exits 1 if one fails. Of a mapping at --base-url, prints what they show of
    its evidence."""
    _known(kind)
    if base_url is None and not is_simulated(kind):
        raise WrongUsage(f"Nothing here simulates {kind}: name a test server or a sandbox of it by --base-url.")
    site = None
    if base_url is not None:
        night = datetime.now(UTC).date() + _SOON if first_night is None else first_night.date()
        site = Site(
            base_url,
            credential_from(None, credential_file),
            options_from(option, options_file),
            property_id=property_id,
            room_id=room_id,
            first_night=night,
            refuses_taken_nights=calendar,
            seconds_between=pause_for(kind),
            tidy=True,
        )
    chosen = _named(only or ())
    configure_logging("debug", "auto")  # the checks read every line
    done = asyncio.run(_all(kind, site, chosen))
    if base_url is not None and not as_json:
        _show_evidence(kind, options_from(option, options_file), base_url, done)
    _show(done, as_json=as_json)


def _show_evidence(kind: str, options: Mapping[str, Any], base_url: str, done: Sequence[Result]) -> None:
    """What the run shows of a mapping's statements, to be put into its evidence and sent back."""
    mapping = mapping_of(kind, options)
    if mapping is not None:
        where = f"forwarder adapters check at {base_url}, {datetime.now(UTC).date()}"
        for line in after_checks(mapping, {result.check.name: result.verdict for result in done}, where):
            say(line)
        say("")


def _known(kind: str) -> None:
    if kind not in pms_kinds():
        raise WrongUsage(f"There is no PMS kind {kind!r}; there are: {', '.join(pms_kinds())}.")


async def _all(kind: str, site: Site | None, checks: Sequence[Check]) -> Sequence[Result]:
    with progress(len(checks), f"checking {kind}") as advance:
        done = []
        try:
            async for result in results(kind, site, checks):
                done.append(result)
                advance(1)
        except BadOptions as error:
            raise WrongUsage(str(error)) from error
        return done


def _named(names: Sequence[str]) -> Sequence[Check]:
    by_name = {check.name: check for check in CHECKS}
    if unknown := [name for name in names if name not in by_name]:
        raise WrongUsage(f"There is no check {unknown[0]!r}; there are: {', '.join(by_name)}.")
    return [by_name[name] for name in names] or CHECKS


def _show(done: Sequence[Result], *, as_json: bool) -> None:
    if as_json:
        show_json([result.as_json() for result in done])
    else:
        show_rows([row for result in done for row in _lines(result)], ("check", "verdict", "why"), as_json=False)
    if failed := [result.check.name for result in done if result.verdict == "failed"]:
        raise Failed(f"{len(failed)} of {len(done)} checks failed: {', '.join(failed)}.")


def _lines(result: Result) -> Iterator[Mapping[str, Any]]:
    first = {"check": result.check.name, "verdict": result.verdict}
    for finding in result.findings or ("",):
        yield {**first, "why": finding}
        first = {}


def _row(adapter: Mapping[str, Any]) -> Mapping[str, Any]:
    can = adapter["capabilities"]
    resolved = (
        "sends the key again" if can["idempotentCreate"] else "looks it up" if can["findByReference"] else "asks you"
    )
    budget = ", ".join(f"{limit['requests']} in {limit['seconds']:g} s" for limit in adapter["limits"])
    return {
        "kind": adapter["kind"],
        "after a doubt": resolved,
        "cancel": "yes" if can["cancel"] else "no",
        "at once": can["mostPerCreate"],
        "requests": budget or "no limit published",
        "known by": _known_by(adapter["evidence"]),
        "from": adapter["from"],
    }


def _known_by(evidence: Mapping[str, Any] | None) -> str:
    """Of a kind that is a mapping: how many of its statements each source vouches for."""
    if evidence is None:
        return "code of its own"
    counted = ", ".join(f"{by} {count}" for by, count in evidence["statements"].items())
    return f"{'experimental: ' if evidence['experimental'] else ''}{counted}"


def _option(option: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = option["choices"]
    shown = " | ".join(map(str, choices)) if 0 < len(choices) <= _MOST_CHOICES else option["type"]
    return {**option, "option": option["name"], "type": shown, "required": "yes" if option["required"] else ""}
