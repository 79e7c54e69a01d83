"""`forwarder adapters …`: the kinds of PMS that this forwarder supports, and conformance checks."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from forwarder import __version__
from forwarder.assembly.pms_catalog import adapters, fields, pms_kinds, try_out
from forwarder.observability.logging import configure_logging
from forwarder.operate.command import commands, options_from
from forwarder.operate.output import AsJson, Failed, Printed, Table, WrongUsage, listed, say, show_json
from forwarder.process.loading import of_kit

_COLUMNS = ("kind", "after a doubt", "cancel", "at once", "requests", "known by", "from")
_MOST_CHOICES = 4
_Kind = Annotated[str, Argument(help="The kind of PMS.")]
_Option = Annotated[list[str] | None, Option(help="NAME=VALUE, an option of its accounts; repeatable.")]
_File = Annotated[Path | None, Option(help="Options in a file, JSON or TOML; or a mapping, YAML.")]


def without_kit() -> None:
    """Run the conformance checks on an adapter. Needs forwarder-pms-kit, which is not installed."""
    mend = f"pip install forwarder-pms-kit=={__version__}"
    raise Failed(f"The checks are in a separate distribution, which is not installed: {mend}")


# It takes all that the kit's own command takes.
vars(without_kit)["context_settings"] = {"allow_extra_args": True, "ignore_unknown_options": True}


def list_adapters() -> Printed:
    """List the kinds of PMS: capabilities, request limits, and the options of their accounts."""
    configure_logging("critical", "auto")  # the list names adapters that could not be loaded
    rows = list(adapters())
    there = [row for row in rows if "error" not in row]
    text: list[str | Table] = [Table([_row(row) for row in there], _COLUMNS)]
    options: list[Mapping[str, Any]] = []
    for row in there:
        for option in row["options"]:
            choices, required = option["choices"], "yes" if option["required"] else ""
            shown = " | ".join(map(str, choices)) if 0 < len(choices) <= _MOST_CHOICES else option["type"]
            named = {"kind": row["kind"], "option": option["name"], "type": shown, "required": required}
            options.append({**named, "description": option["description"]})
    if options:
        text += ["", Table(options, [*options[0]])]
    if lost := [row for row in rows if "error" in row]:
        text += ["\nNot loaded:", Table(lost, ("kind", "from", "error"))]
    return Printed(rows, text)


def show_fields(kind: _Kind, option: _Option = None, options_file: _File = None) -> Printed:
    """Show what happens to each field of a reservation request: its name in the PMS, in the notes, or not sent and why."""
    require_kind(kind)
    return listed(fields(kind, options_from(option, options_file)), ("field", "becomes"))


def try_kind(
    kind: _Kind,
    base_url: Annotated[str | None, Option(help="The PMS's address. By default the vendor's own.")] = None,
    option: _Option = None,
    options_file: _File = None,
    property_id: Annotated[str, Option("--property", help="Property of the sample.")] = "5001",
    room_id: Annotated[str | None, Option("--room", help="Room of the sample. By default the property.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the requests for a sample reservation: to create it, to look it up and to cancel it. Nothing is sent."""
    require_kind(kind)
    fields = {"propertyId": property_id, "roomId": property_id if room_id is None else room_id}
    tried = try_out(kind, base_url, options_from(option, options_file), fields)
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


def require_kind(kind: str) -> None:
    """Raises `WrongUsage`."""
    if kind not in pms_kinds():
        raise WrongUsage(f"There is no PMS kind {kind!r}; there are: {', '.join(pms_kinds())}.")


def _row(adapter: Mapping[str, Any]) -> Mapping[str, Any]:
    can = adapter["capabilities"]
    asks = "looks it up" if can["findByReference"] else "asks you"
    resolved = "sends the key again" if can["idempotentCreate"] else asks
    budget = ", ".join(f"{limit['requests']} in {limit['seconds']:g} s" for limit in adapter["limits"])
    known_by = "code of its own"
    if (evidence := adapter["evidence"]) is not None:  # for a mapping: how many of its statements rest on each source
        counted = ", ".join(f"{by} {count}" for by, count in evidence["statements"].items())
        known_by = f"{'experimental: ' if evidence['experimental'] else ''}{counted}"
    can_cancel, requests = "yes" if can["cancel"] else "no", budget or "no limit published"
    cells = (adapter["kind"], resolved, can_cancel, can["mostPerCreate"], requests, known_by, adapter["from"])
    return dict(zip(_COLUMNS, cells, strict=True))


COMMANDS = commands(list=list_adapters, fields=show_fields, try_=try_kind, check=of_kit("command:check") or without_kit)
