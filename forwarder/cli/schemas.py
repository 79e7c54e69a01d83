"""`forwarder schemas …`: the published contracts, generated from the code and held against it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from forwarder.assembly.contracts import contracts, pages
from forwarder.cli.output import Failed, say

_Directory = Annotated[Path, typer.Option(help="Where the contracts are kept.")]
_Docs = Annotated[Path, typer.Option(help="Where the pages for readers are kept.")]
_SCHEMAS = Path("schemas")
_DOCS = Path("docs")


def commands() -> typer.Typer:
    """write, check"""
    group = typer.Typer(help="The published contracts.", no_args_is_help=True)
    group.command("write")(write)
    group.command("check")(check)
    return group


def write(directory: _Directory = _SCHEMAS, docs: _Docs = _DOCS) -> None:
    """Write the contracts, and the page of problems, anew."""
    for path, text in _files(directory, docs):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        say(f"{path} written.")
    for path in _strays(directory):
        say(f"{path} is no contract: remove it.")


def check(directory: _Directory = _SCHEMAS, docs: _Docs = _DOCS) -> None:
    """Fail where a contract is not what the code says."""
    drifted = [str(path) for path, text in _files(directory, docs) if not _same(path, text)]
    if drifted:
        raise Failed(f"{', '.join(drifted)} drifted from the code: run `forwarder schemas write`.")
    strays = [str(path) for path in _strays(directory)]
    if strays:
        raise Failed(f"{', '.join(strays)}: no contract of ours, but where they are kept. Remove it.")
    say("The contracts are what the code says.")


def _files(directory: Path, docs: Path) -> Iterator[tuple[Path, str]]:
    yield from ((directory / name, text) for name, text in contracts().items())
    yield from ((docs / name, text) for name, text in pages().items())


def _strays(directory: Path) -> list[Path]:
    """Files where only contracts are kept that are none, such as the schema of an event that is gone."""
    ours = {directory / name for name in contracts()}
    return sorted(path for path in directory.rglob("*") if path.is_file() and path not in ours)


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text
