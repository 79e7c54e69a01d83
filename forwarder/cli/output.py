"""Printing: tables for people, JSON with `--json` for programs; failures on standard error."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Annotated, Any

import typer
from pydantic_core import to_json
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from forwarder.process.printable import OBEYED, printable

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


_UNBOUNDED = 1000
"""Columns whose values people copy: a terminal wraps them instead of truncating."""


class Failed(Exception):
    """The command failed. The message is for the person who ran it."""


class WrongUsage(Exception):
    """Invalid usage of a command. The message says what is valid."""


def show_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool) -> None:
    """Prints rows: a JSON array; or a table of `columns`, padded on a terminal, tab-separated elsewhere."""
    if as_json:
        show_json(list(rows))
        return
    if not sys.stdout.isatty():
        show_lines(map(_tabbed, ({name: name for name in columns}, *rows), repeat(columns)))
        return
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*("" if row.get(column) is None else printable(str(row[column])) for column in columns))
    _unbounded().print(table)


def _tabbed(row: Mapping[str, Any], columns: Sequence[str]) -> str:
    """The values of `columns`, separated by tabs; tabs and line breaks within a value become spaces."""
    cells = ("" if row.get(column) is None else str(row[column]) for column in columns)
    return "\t".join(map(_cell, cells))


def _cell(text: str) -> str:
    return printable(text).replace("\t", " ").replace("\n", " ")


def show_one(row: Mapping[str, Any], *, as_json: bool) -> None:
    """Prints one object: as JSON, or a line for each of its fields."""
    if as_json:
        show_json(row)
        return
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        for name, value in row.items()
    }
    if not sys.stdout.isatty():
        show_lines(_tabbed({"name": name, "value": text}, ("name", "value")) for name, text in texts.items())
        return
    table = Table.grid(padding=(0, 2))
    for name, text in texts.items():
        table.add_row(printable(name), printable(text))
    console().print(table)


def show_table(rows: Iterable[Sequence[str]]) -> None:
    """Prints lines of several unnamed columns; on a terminal the last one is wrapped, elsewhere they are tab-separated."""
    if not sys.stdout.isatty():
        show_lines("\t".join(map(_cell, row)) for row in rows)
        return
    table = Table.grid(padding=(0, 2))
    for row in rows:
        table.add_row(*map(printable, row))
    console().print(table)


def show_json(value: Any) -> None:
    """JSON on standard output, one document a line."""
    sys.stdout.write(f"{json_line(value)}\n")


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
    """Prints a line for a person."""
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


def console() -> Console:
    """Standard output; no colour and no wrapping unless it is a terminal."""
    return Console(markup=False, emoji=False) if sys.stdout.isatty() else _unbounded()


def _unbounded() -> Console:
    return Console(markup=False, emoji=False, soft_wrap=True, width=_UNBOUNDED)
