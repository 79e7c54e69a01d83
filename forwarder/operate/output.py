"""The one renderer of what operators see: a value becomes JSON with `--json`, and a table, lines or a sentence without. A value is
a frozen dataclass, or a mapping with the names that are printed. Names are in camel case, times in ISO 8601."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Annotated, Any

from pydantic.alias_generators import to_camel, to_snake
from pydantic_core import to_json
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.table import Table as RichTable
from typer import Option

from forwarder.observability.logging import OBEYED, printable
from forwarder.process.clock import iso

AsJson = Annotated[bool, Option("--json", help="Print JSON instead of a table.")]


class Failed(Exception):
    """The command failed. The message is for the person who ran it."""


class WrongUsage(Exception):
    """Invalid usage of a command. The message says what is valid."""


def plain(value: Any) -> Any:
    """`value` as JSON has it: a dataclass as an object of its fields, an enum as its value, a time as ISO 8601."""
    if is_dataclass(value) and not isinstance(value, type):
        return {to_camel(each.name): plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    return iso(value) if isinstance(value, datetime) else value


def picked(value: Any, names: str) -> dict[str, Any]:
    """The attributes of `value` that `names` lists, as they are printed. `name=attribute` where those two differ; the attribute may
    be one of an attribute, `status=known.state`, and is None where that one is."""
    found = {}
    for each in names.split():
        name, _, path = each.partition("=")
        attribute = value
        for step in (path or to_snake(name)).split("."):
            attribute = None if attribute is None else getattr(attribute, step)
        found[name] = plain(attribute)
    return found


@dataclass(frozen=True, slots=True)
class Table:
    """Objects in rows, under the names of `columns`: padded on a terminal, tab-separated elsewhere."""

    rows: Sequence[Any]
    columns: Sequence[str]


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of unnamed columns. On a terminal the last one is wrapped; elsewhere they are tab-separated."""

    rows: Iterable[Sequence[str]]


Block = str | Table | Grid


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command shows: `value` with --json; without, the blocks of `text`, sentences and tables. `notes` are for people in
    both cases, on standard error. `failed`: why the command exits with code 1 after that."""

    value: Any
    text: Block | Sequence[Block]
    notes: Sequence[str] = ()
    failed: str | None = None

    def show(self, *, as_json: bool) -> None:
        """Raises `Failed`."""
        if as_json:
            show_json(self.value)
        else:
            show(*([self.text] if isinstance(self.text, Block) else self.text))
        for each in self.notes:
            note(each)
        if self.failed is not None:
            raise Failed(self.failed)


def more_than(limit: int) -> Sequence[str]:
    return [f"There are more than the newest {limit:,}; --limit shows more."]


def listed(rows: Sequence[Any], columns: Sequence[str], *, notes: Sequence[str] = ()) -> Printed:
    """Rows as a JSON array, or as a table of `columns`."""
    return Printed(rows, Table(rows, columns), notes)


def fields_of(row: Any) -> Grid:
    """A line for each field of an object; what is nested is JSON."""
    rows = []
    for name, each in plain(row).items():
        nested = isinstance(each, dict) or (isinstance(each, list) and any(isinstance(one, dict) for one in each))
        rows.append((name, json.dumps(each, ensure_ascii=False, default=str) if nested else _text(each)))
    return Grid(rows)


def of_one(row: Any) -> Printed:
    """One object, as a JSON object or with a line for each field."""
    return Printed(row, fields_of(row))


def show(*blocks: Block) -> None:
    terminal = sys.stdout.isatty()
    for block in blocks:
        match block:
            case str():
                say(block)
            case Grid(rows) if terminal:
                grid = RichTable.grid(padding=(0, 2))
                for row in rows:
                    grid.add_row(*map(printable, row))
                console().print(grid)
            case Grid(rows):
                show_lines(map(_tabbed, rows))
            case Table(objects, columns):
                cells = [[_text(row.get(column)) for column in columns] for row in map(plain, objects)]
                if not terminal:
                    show_lines(map(_tabbed, (columns, *cells)))
                    continue
                table = RichTable(*(Column(each, no_wrap=True) for each in columns), box=None, pad_edge=False)
                for cell in cells:
                    table.add_row(*map(printable, cell))
                console(wide=True).print(table)


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "" if value is None else "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _tabbed(cells: Sequence[str]) -> str:
    """The cells, separated by tabs; tabs and line breaks within one become spaces."""
    return "\t".join(printable(each).replace("\t", " ").replace("\n", " ") for each in cells)


def show_json(value: Any) -> None:
    """JSON on standard output, one document a line."""
    sys.stdout.write(f"{json_line(plain(value))}\n")


def json_line(value: Any) -> str:
    """JSON in one line, with control characters escaped. Non-finite numbers are null, as everywhere in the service."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        text = to_json(value, inf_nan_mode="null", fallback=str).decode()
    return OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def show_lines(lines: Iterable[str]) -> None:
    """Prints lines of data unchanged, and flushes them, because a pipe's reader waits for them."""
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


@contextmanager
def while_read() -> Iterator[None]:
    """Ends the block silently if the reader of standard output has gone, as after `| head`."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python still flushes at exit


def say(text: str) -> None:
    console().print(printable(text), highlight=False)


def note(text: str) -> None:
    """Prints a line for a person on standard error, apart from the data."""
    sys.stderr.write(f"{printable(text)}\n")


@contextmanager
def progress(total: int, doing: str) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, if that is a terminal. Yields a function to call with how many more of `total` are done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as shown:
        task = shown.add_task(doing, total=total)
        yield lambda more: shown.advance(task, more)


def console(*, wide: bool = False) -> Console:
    """Standard output. `wide`, and unless it is a terminal, it does not wrap or truncate: people copy these values."""
    if wide or not sys.stdout.isatty():
        return Console(markup=False, emoji=False, soft_wrap=True, width=1000)
    return Console(markup=False, emoji=False)
