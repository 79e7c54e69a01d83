"""Scans all stored data for card numbers and security codes, or known values. Reports where a hit is, never its value."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic_core import from_json
from typer import Argument, Exit, Option

from forwarder.assembly.backend import Backend
from forwarder.operate.command import open_deployment, stop_on_signal, text_from, unless_stopped
from forwarder.operate.output import AsJson, Block, Printed, Table, WrongUsage, picked
from forwarder.reservation.checks.card_numbers import find, mask, may_hold
from forwarder.store.database import SqlTexts, StoredText
from forwarder.topics.port import ConsumedMessage, read_to_end

MAX_HITS_LISTED: Final = 1_000  # per place; further hits are only counted
Look = Callable[[str], set[str]]  # finds kinds of sensitive data in a text


class Hit(NamedTuple):
    """`part`: a column, or a part of a message. `key`: the row's primary key, a message's partition and offset, a file's line."""

    place: str
    part: str
    key: str
    what: str


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

    def add(self, pieces: Sequence[StoredText], look: Look) -> None:
        for piece in pieces:
            self.texts += 1
            self.bytes += len(piece.text.encode("utf-8", "surrogatepass"))
            for what in sorted(look(piece.text)):
                self.found += 1
                if len(self.hits) < MAX_HITS_LISTED:
                    self.hits.append(Hit(self.place, piece.column, mask(piece.key), what))


def cards_in(text: str) -> set[str]:
    """Finds card numbers and security codes: in the texts and whole numbers of a JSON document, or in a plain text."""
    parts = [text]
    if text.startswith(("{", "[", '"')):
        with suppress(ValueError):
            parts = [*texts_in(from_json(text))]
    return {found.what for part in parts if may_hold(part) for found in find(part)}


def look_for(values: Collection[str], *, cards: bool) -> Look:
    """Looks for these very values; with `cards`, as `cards_in` too."""

    def look(text: str) -> set[str]:
        known = {"known_value"} if any(value in text for value in values) else set[str]()
        return known | cards_in(text) if cards else known

    return look


def scan_file(path: Path, look: Look, progress: Scanned) -> None:
    """Scans a file of any type as text, line by line. Raises `OSError`."""
    with path.open("rb") as file:
        before, number = b"", 1
        while line := file.readline(1024 * 1024):
            progress.add([StoredText("", f"line {number}", (before + line).decode("utf-8", "replace"))], look)
            # Chunks of a long line overlap by more than any value: one across the end of a chunk is whole in the next.
            ended = line.endswith(b"\n")
            number, before = number + ended, b"" if ended else line[-1024:]
            progress.bytes -= len(before)


def _pieces(consumed: ConsumedMessage) -> Iterator[StoredText]:
    message, key = consumed.message, f"{consumed.partition}:{consumed.offset}"
    headers = ((f"header {name}", each) for name, each in message.headers)
    for part, content in (("key", message.key), ("value", message.value), *headers):
        if content:
            yield StoredText(mask(part), key, content.decode("utf-8", "replace"))


def texts_in(value: Any) -> Iterator[str]:
    """The texts, names and whole numbers in a JSON value."""
    match value:
        case str():
            yield value
        case int() if not isinstance(value, bool):
            yield str(value)
        case dict():
            for name, part in value.items():
                yield name
                yield from texts_in(part)
        case list():
            for part in value:
                yield from texts_in(part)


async def scan(
    paths: Annotated[list[Path] | None, Argument(metavar="[PATH]...")] = None,
    pan: bool = False,
    values_file: Annotated[Path | None, Option(metavar="PATH")] = None,
    only: Annotated[list[str] | None, Option(metavar="NAME", help="Only this table or topic; repeatable.")] = None,
    as_json: AsJson = False,
) -> None:
    """Scan all stored data for card data: all tables of the database, all topics.

    Shows the place of each hit (table, column, key; topic, part, partition:offset), never its value. Exits 1 if there is a hit,
    130 if Ctrl-C interrupted it; then it shows the result so far.

    paths: Files and directories to look through as well.
    pan: Look for card numbers and security codes.
    values_file: Look for the values in this file, one a line; - reads them from standard input."""
    if not pan and values_file is None:
        raise WrongUsage("Say what to look for: --pan, or --values-file.")
    values = [line for line in text_from(values_file).splitlines() if line.strip()] if values_file is not None else []
    if values_file is not None and not values:
        raise WrongUsage(f"{values_file} holds no value to look for.")
    async with open_deployment() as backend:
        async with backend.log.admin() as admin:
            known = await admin.list()
        found = [Scanned(name, "table") for name in await SqlTexts(backend.engine).tables()]
        found += [Scanned(name, "topic") for name in backend.settings.topics.all() if name in known]
        if unknown := set(only or ()) - {each.place for each in found}:
            names = ", ".join(each.place for each in found)
            raise WrongUsage(f"There is no table or topic {min(unknown)!r}; there are: {names}.")
        scanned = [each for each in found if not only or each.place in only]
        for path in paths or ():
            files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
            scanned += [Scanned(str(file), "file") for file in files]
        with stop_on_signal() as stop:
            for each in scanned:
                if not stop.is_set():
                    await unless_stopped(_scan(backend, look_for(values, cards=pan), each), stop)
    hits = [hit._asdict() for each in scanned for hit in each.hits]
    rows = [picked(each, "place kind texts bytes hits=found complete") for each in scanned]
    texts, size, count = (sum(row[name] for row in rows) for name in ("texts", "bytes", "hits"))
    left = [each.place for each in scanned if not each.complete]
    text: list[Block] = [
        Table(rows, ("place", "kind", "texts", "bytes", "hits")),
        *([Table(hits, ("place", "part", "key", "what"))] if hits else []),
        f"{size:,} bytes scanned, hits: {count:,}.",
    ]
    totals = {"texts": texts, "bytes": size, "hits": count, "complete": not left}
    interrupted = f"Interrupted. Not looked through to the end: {', '.join(left)}. --only takes one at a time."
    notes = [interrupted] if left and not as_json else ()
    Printed({**totals, "scanned": rows, "found": hits}, text, notes).show(as_json=as_json)
    if count or left:
        raise Exit(1 if count else 130)


async def _scan(backend: Backend, look: Look, place: Scanned) -> None:
    """Scans a table, a topic or a file; updates `place`. Raises `StoreUnavailable`, `LogUnavailable`, `OSError`."""
    match place.kind:
        case "table":
            async with aclosing(SqlTexts(backend.engine).of(place.place)) as batches:
                async for batch in batches:
                    place.add(batch, look)
        case "topic":
            async with aclosing(read_to_end(backend.log, place.place)) as messages:
                async for some in messages:
                    place.add([piece for each in some for piece in _pieces(each)], look)
        case _:
            await asyncio.to_thread(scan_file, Path(place.place), look, place)
    place.complete = True
