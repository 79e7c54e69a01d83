"""`forwarder scan`: looks through tables, topics and files for card data, or for values that must not be there."""

import asyncio
import sys
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from forwarder.assembly.backend import Backend
from forwarder.cli.backend import stop_on_signal, with_backend
from forwarder.cli.options import lines_from
from forwarder.cli.output import AsJson, WrongUsage, note, say, show_json, show_rows
from forwarder.operations.privacy.scan import (
    Look,
    Scanned,
    cards_in,
    either,
    files_in,
    places,
    scan_file,
    scan_table,
    scan_topic,
    values_in,
)
from forwarder.process.loops import first_of
from forwarder.store.texts import SqlTexts

_INTERRUPTED = 130


def scan(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATH]...", help="Files and directories to look through as well.")
    ] = None,
    pan: Annotated[bool, typer.Option("--pan", help="Look for card numbers and security codes.")] = False,
    values_file: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Look for the values in this file, one a line; - reads them from standard input."
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this table or topic; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Scan all stored data for card data: all tables of the database, all topics.

    Shows the place of each hit (table, column, key; topic, part, partition:offset), never its value. Exits 1 if there is a hit,
    130 if Ctrl-C interrupted it; then it shows the result so far.
    """
    looks: list[Look] = [cards_in] if pan else []
    if values_file is not None:
        looks.append(values_in(lines_from(values_file)))
    if not looks:
        raise WrongUsage("Say what to look for: --pan, or --values-file.")

    async def run(backend: Backend) -> list[Scanned]:
        with stop_on_signal() as stop:
            return await _scan(backend, either(*looks), only or (), paths or (), stop)

    scanned = with_backend(run)
    _show(scanned, as_json=as_json)
    if any(each.found for each in scanned):
        sys.exit(1)
    if not all(each.complete for each in scanned):
        sys.exit(_INTERRUPTED)


async def _scan(
    backend: Backend, look: Look, only: Sequence[str], paths: Sequence[Path], stop: asyncio.Event
) -> list[Scanned]:
    found = await places(SqlTexts(backend.engine), backend.log, backend.settings.topics.all())
    if unknown := set(only) - {each.place for each in found}:
        names = ", ".join(each.place for each in found)
        raise WrongUsage(f"There is no table or topic {min(unknown)!r}; there are: {names}.")
    wanted = [each for each in found if not only or each.place in only]
    wanted += [Scanned(str(path), "file") for path in files_in(paths)]
    for each in wanted:
        if not stop.is_set():
            await _until(stop, _one(backend, look, each))
    return wanted


async def _one(backend: Backend, look: Look, place: Scanned) -> None:
    match place.kind:
        case "table":
            await scan_table(SqlTexts(backend.engine), place.place, look, place)
        case "topic":
            await scan_topic(backend.log, place.place, look, place)
        case _:
            await asyncio.to_thread(scan_file, Path(place.place), look, place)


async def _until(stop: asyncio.Event, scanning: Awaitable[None]) -> None:
    """Scans to the end, or until the signal. Raises the scan's errors."""
    running = asyncio.ensure_future(scanning)
    await first_of(running, stop.wait())
    if not running.cancelled():
        running.result()


def _show(scanned: Sequence[Scanned], *, as_json: bool) -> None:
    hits = [hit for each in scanned for hit in each.hits]
    rows = [
        {
            "place": each.place,
            "kind": each.kind,
            "texts": each.texts,
            "bytes": each.bytes,
            "hits": each.found,
            "complete": each.complete,
        }
        for each in scanned
    ]
    if as_json:
        totals = {name: sum(getattr(each, name) for each in scanned) for name in ("texts", "bytes")}
        show_json(
            {
                **totals,
                "hits": sum(each.found for each in scanned),
                "complete": all(each.complete for each in scanned),
                "scanned": rows,
                "found": [hit._asdict() for hit in hits],
            }
        )
        return
    show_rows(rows, ("place", "kind", "texts", "bytes", "hits"), as_json=False)
    if hits:
        show_rows([hit._asdict() for hit in hits], ("place", "part", "key", "what"), as_json=False)
    total, size = sum(each.found for each in scanned), sum(each.bytes for each in scanned)
    say(f"{size:,} bytes scanned, hits: {total:,}.")
    if left := [each.place for each in scanned if not each.complete]:
        note(f"Interrupted. Not looked through to the end: {', '.join(left)}. --only takes one at a time.")
