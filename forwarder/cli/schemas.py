"""`forwarder schemas …`: the published contracts, generated from the code, held against it, and against what was released."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from forwarder.assembly.contracts import breaks_of, contracts, pages, promised
from forwarder.cli.output import Failed, say

_Directory = Annotated[Path, typer.Option(help="Where the contracts are kept.")]
_Docs = Annotated[Path, typer.Option(help="Where the pages for readers are kept.")]
_Against = Annotated[
    Path | None, typer.Option(help="The contracts of a release; by default `released`, where the contracts are kept.")
]
_SCHEMAS = Path("schemas")
_DOCS = Path("docs")
_RELEASED = "released"


def commands() -> typer.Typer:
    """write, check, release"""
    group = typer.Typer(help="The published contracts.", no_args_is_help=True)
    group.command("write")(write)
    group.command("check")(check)
    group.command("release")(release)
    return group


def write(directory: _Directory = _SCHEMAS, docs: _Docs = _DOCS) -> None:
    """Write the contracts, and the page of problems, anew."""
    for path, text in _files(directory, docs):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        say(f"{path} written.")
    for path in _strays(directory):
        say(f"{path} is no contract: remove it.")


def check(directory: _Directory = _SCHEMAS, docs: _Docs = _DOCS, against: _Against = None) -> None:
    """Fail where a contract is not what the code says, or breaks who was built against the last release."""
    drifted = [str(path) for path, text in _files(directory, docs) if not _same(path, text)]
    if drifted:
        raise Failed(f"{', '.join(drifted)} drifted from the code: run `forwarder schemas write`.")
    strays = [str(path) for path in _strays(directory)]
    if strays:
        raise Failed(f"{', '.join(strays)}: no contract of ours, but where they are kept. Remove it.")
    say("The contracts are what the code says.")
    if against is None and not (directory / _RELEASED).exists():
        say("Nothing is released yet.")
        return
    _require_additions(_released(against or directory / _RELEASED))
    say("Since the last release things were only added.")


def release(directory: _Directory = _SCHEMAS) -> None:
    """Keep the contracts as those of a release, which every later one must honour. Fails where they break the one before."""
    before = directory / _RELEASED
    if before.exists():
        _require_additions(_released(before))
    for name, text in promised().items():
        path = before / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    say(f"{before} written: from now on things are only added to it.")


def _released(folder: Path) -> Mapping[str, str]:
    found = {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob("*.json")}
    if not found:
        raise Failed(f"{folder} holds no contracts.")
    return found


def _require_additions(released: Mapping[str, str]) -> None:
    breaks = breaks_of(released)
    if breaks:
        listed = "\n".join(f"- {one}" for one in breaks)
        raise Failed(f"This breaks what was released; see docs/reference/versioning.md:\n{listed}")


def _files(directory: Path, docs: Path) -> Iterator[tuple[Path, str]]:
    yield from ((directory / name, text) for name, text in contracts().items())
    yield from ((docs / name, text) for name, text in pages().items())


def _strays(directory: Path) -> list[Path]:
    """Files where only contracts are kept that are none, such as the schema of an event that is gone."""
    ours = {directory / name for name in contracts()}
    kept = (path for path in directory.rglob("*") if path.is_file() and path not in ours)
    return sorted(path for path in kept if not path.is_relative_to(directory / _RELEASED))


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text
