"""Scans all stored data for what must not be there: card numbers and security codes, or known values.

Reports where a hit is, never its value. Holds one batch in memory at a time.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from pydantic_core import from_json

from forwarder.assembly.backend import Backend
from forwarder.operate.command import lines_from, stop_on_signal, unless_stopped, with_backend
from forwarder.operate.output import AsJson, WrongUsage, note, picked, say, show_json, show_rows
from forwarder.reservation.checks.card_numbers import find, mask, may_hold
from forwarder.store.texts import SqlTexts
from forwarder.topics.port import ConsumedMessage, Log
from forwarder.topics.reading import read_to_end

MAX_HITS_LISTED: Final = 1_000
"""Per place. Further hits are only counted."""

_CHUNK: Final = 1024 * 1024
_OVERLAP: Final = 1024
"""Longer than any value that is searched for."""

KNOWN_VALUE: Final = "known_value"

Look = Callable[[str], Collection[str]]
"""Finds kinds of sensitive data in a text."""


class Hit(NamedTuple):
    """Data that must not be there. `part`: a column, or a part of a message; `key`: the row's primary key, a message's
    partition and offset, or a file's line."""

    place: str
    part: str
    key: str
    what: str


class Piece(NamedTuple):
    """A text that is kept, and where."""

    part: str
    key: str
    text: str


@dataclass(slots=True)
class Scanned:
    """Progress through one table, topic or file. `bytes`: of its texts, in UTF-8; `hits`: the first of `found`."""

    place: str
    kind: str
    texts: int = 0
    bytes: int = 0
    found: int = 0
    complete: bool = False
    hits: list[Hit] = field(default_factory=list)

    def add(self, pieces: Sequence[Piece], look: Look) -> None:
        for piece in pieces:
            self.texts += 1
            self.bytes += len(piece.text.encode("utf-8", "surrogatepass"))
            for what in sorted(look(piece.text)):
                self.found += 1
                if len(self.hits) < MAX_HITS_LISTED:
                    self.hits.append(Hit(self.place, piece.part, mask(piece.key), what))


def cards_in(text: str) -> Collection[str]:
    """Finds card numbers and security codes: in the texts and whole numbers of a JSON document, or in a plain text."""
    parts = [text]
    if text.startswith(("{", "[", '"')):
        try:
            parts = list(_texts(from_json(text)))
        except ValueError:
            parts = [text]
    return {found.what for part in parts if may_hold(part) for found in find(part)}


def values_in(values: Collection[str]) -> Look:
    """Looks for these very values."""
    return lambda text: {KNOWN_VALUE} if any(value in text for value in values) else ()


def either(*looks: Look) -> Look:
    """A look that finds everything that any of `looks` finds."""
    return lambda text: {what for look in looks for what in look(text)}


async def scan_table(stored: SqlTexts, table: str, look: Look, progress: Scanned) -> None:
    """Scans a table; updates `progress`. Raises `StoreUnavailable`."""
    async with aclosing(stored.of(table)) as batches:
        async for batch in batches:
            progress.add([Piece(*each) for each in batch], look)
    progress.complete = True


async def scan_topic(log: Log, topic: str, look: Look, progress: Scanned) -> None:
    """Scans the present messages of a topic: keys, values and headers. Raises `LogUnavailable`."""
    batches: AsyncGenerator[Sequence[ConsumedMessage], None] = read_to_end(log, topic)
    async with aclosing(batches):
        async for batch in batches:
            progress.add([piece for each in batch for piece in _pieces(each)], look)
    progress.complete = True


def scan_file(path: Path, look: Look, progress: Scanned) -> None:
    """Scans a file of any type as text, line by line. Raises `OSError`."""
    with path.open("rb") as file:
        before, number = b"", 1
        while line := file.readline(_CHUNK):
            progress.add([Piece("", f"line {number}", (before + line).decode("utf-8", "replace"))], look)
            # Long lines are read in chunks that overlap, so a value across the end of one chunk is whole in the next.
            ended = line.endswith(b"\n")
            number, before = number + ended, b"" if ended else line[-_OVERLAP:]
            progress.bytes -= len(before)
    progress.complete = True


async def places(stored: SqlTexts, log: Log, topics: Collection[str]) -> Sequence[Scanned]:
    """The tables, and those of `topics` that exist. Raises `StoreUnavailable`, `LogUnavailable`."""
    async with log.admin() as admin:
        known = await admin.list()
    in_store = [Scanned(name, "table") for name in await stored.tables()]
    return [*in_store, *(Scanned(name, "topic") for name in topics if name in known)]


def files_in(paths: Collection[Path]) -> Iterator[Path]:
    """These files, and those in these directories."""
    for path in paths:
        if path.is_dir():
            yield from sorted(each for each in path.rglob("*") if each.is_file())
        else:
            yield path


def _pieces(consumed: ConsumedMessage) -> Iterator[Piece]:
    message, key = consumed.message, f"{consumed.partition}:{consumed.offset}"
    parts = (
        ("key", message.key),
        ("value", message.value),
        *((f"header {name}", each) for name, each in message.headers),
    )
    for part, content in parts:
        if content:
            yield Piece(mask(part), key, content.decode("utf-8", "replace"))


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case bool() | float() | None:
            return
        case int():
            yield str(value)
        case dict():
            for name, part in value.items():
                yield name
                yield from _texts(part)
        case list():
            for part in value:
                yield from _texts(part)


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
            await unless_stopped(_one(backend, look, each), stop)
    return wanted


async def _one(backend: Backend, look: Look, place: Scanned) -> None:
    match place.kind:
        case "table":
            await scan_table(SqlTexts(backend.engine), place.place, look, place)
        case "topic":
            await scan_topic(backend.log, place.place, look, place)
        case _:
            await asyncio.to_thread(scan_file, Path(place.place), look, place)


def _show(scanned: Sequence[Scanned], *, as_json: bool) -> None:
    hits = [hit._asdict() for each in scanned for hit in each.hits]
    rows = [picked(each, "place kind texts bytes hits=found complete") for each in scanned]
    texts, size, found = (sum(row[name] for row in rows) for name in ("texts", "bytes", "hits"))
    if as_json:
        complete = all(each.complete for each in scanned)
        totals = {"texts": texts, "bytes": size, "hits": found, "complete": complete}
        show_json({**totals, "scanned": rows, "found": hits})
        return
    show_rows(rows, ("place", "kind", "texts", "bytes", "hits"), as_json=False)
    if hits:
        show_rows(hits, ("place", "part", "key", "what"), as_json=False)
    say(f"{size:,} bytes scanned, hits: {found:,}.")
    if left := [each.place for each in scanned if not each.complete]:
        note(f"Interrupted. Not looked through to the end: {', '.join(left)}. --only takes one at a time.")
