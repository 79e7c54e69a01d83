"""`forwarder schemas …`: the published contracts, generated from the code and held against it."""

from pathlib import Path
from typing import Annotated

import typer

from forwarder.assembly.published import contracts
from forwarder.cli.output import Failed, say

_Directory = Annotated[Path, typer.Option(help="Where the contracts are kept.")]
_DEFAULT = Path("schemas")


def commands() -> typer.Typer:
    """write, check"""
    group = typer.Typer(help="The published contracts.", no_args_is_help=True)
    group.command("write")(write)
    group.command("check")(check)
    return group


def write(directory: _Directory = _DEFAULT) -> None:
    """Write the contracts anew."""
    for name, text in contracts().items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        say(f"{path} written.")


def check(directory: _Directory = _DEFAULT) -> None:
    """Fail where a contract is not what the code says."""
    drifted = [name for name, text in contracts().items() if not _same(directory / name, text)]
    if drifted:
        raise Failed(f"{', '.join(drifted)} in {directory} drifted from the code: run `forwarder schemas write`.")
    say("The contracts are what the code says.")


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text
