"""docs/reference/commands.md: every command, with its arguments and options."""

from collections.abc import Iterator
from typing import Any, Final

import typer

from forwarder.cli.program import program
from tools.reference.source import HEAD, table

_ABOUT: Final = """# Commands

Every command that prints data also takes `--json` (not repeated below). Exit codes: 0 done, 1 failed, 2 wrong usage. The
commands read the same [settings](settings.md) as the processes.

At night begin with [At night](../operations/at-night.md).

"""

_NEEDS: Final = {
    "When something is wrong": "status doctor submissions dead-letters doubles recover",
    "Callers and their PMSs": "workspace key account adapters webhook",
    "Set up and start": "migrate topics up ingress worker query notifier housekeeping console",
    "Guests, secrets and the audit trail": "guests retention purge scan secret audit",
    "Try and develop": "simulate listen results",
}
"""The commands in the order in which they are needed."""


def commands_page() -> str:
    """The page. Raises `ValueError` if a command has no place on it."""
    placed = [name for names in _NEEDS.values() for name in names.split()]
    if others := set(_tree("").commands).symmetric_difference(placed):
        raise ValueError(f"{', '.join(sorted(others))}: name each command once in {__name__}._NEEDS")
    return HEAD + _ABOUT + "\n".join(_part(need, names.split()) for need, names in _NEEDS.items())


def _part(need: str, names: list[str]) -> str:
    return f"## {need}\n\n" + "\n".join(part for name in names for part in _section([name], _tree(name)))


def _tree(called: str) -> Any:
    """The whole program, in which the command `called` is complete: the program imports only what is called."""
    return typer.main.get_command(program([called] if called else []))


def _section(path: list[str], parent: Any) -> Iterator[str]:
    command = parent.commands[path[-1]]
    yield f"{'#' * (len(path) + 2)} forwarder {' '.join(path)}\n\n{_text(command.help)}\n"
    if subcommands := getattr(command, "commands", None):
        for name in subcommands:
            yield from _section([*path, name], command)
        return
    context = typer.Context(command)
    yield f"```\n{' '.join(['forwarder', *path, *command.collect_usage_pieces(context)])}\n```\n"
    found = (parameter.get_help_record(context) for parameter in command.params)
    records = [record for record in found if record is not None and record[0] != "--json"]
    if records:
        yield table(["", "meaning"], [[f"`{names}`", " ".join(about.split())] for names, about in records])


def _text(help_text: str | None) -> str:
    """The help's paragraphs, each on one line."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (help_text or "").split("\n\n"))
