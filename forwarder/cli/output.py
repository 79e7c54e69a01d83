"""What commands print: tables for people, JSON with `--json` for programs; failures on standard error."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


_UNBOUNDED = 1000
"""Columns where nobody looks: what reads a pipe wants whole values."""


class Failed(Exception):
    """The command could not do what it was asked to. The message is for the person who asked."""


class WrongUsage(Exception):
    """The command was asked for something that makes no sense. The message says what would."""


def show_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool) -> None:
    """Rows of data: a JSON array, or a table of `columns`."""
    if as_json:
        show_json(list(rows))
        return
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*("" if row.get(column) is None else str(row[column]) for column in columns))
    console().print(table)


def show_one(row: Mapping[str, Any], *, as_json: bool) -> None:
    """One thing: a JSON object, or a line for each of its fields."""
    if as_json:
        show_json(row)
        return
    table = Table.grid(padding=(0, 2))
    for name, value in row.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        table.add_row(name, text)
    console().print(table)


def show_json(value: Any) -> None:
    """JSON on standard output, one document a line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")


def say(text: str) -> None:
    """A line for a person."""
    console().print(text, highlight=False)


def console() -> Console:
    """Standard output; no colour where it is not a terminal, no wrapping where nobody reads."""
    return Console() if sys.stdout.isatty() else Console(soft_wrap=True, width=_UNBOUNDED)
