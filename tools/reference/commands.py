"""docs/reference/commands.md: every command, with its arguments and options."""

from collections.abc import Iterator
from typing import Any, Final

import typer

from forwarder.cli.program import program
from tools.reference.source import HEAD, table

_ABOUT: Final = """# Commands

Every command that prints data also takes `--json` (not repeated below). Exit codes: 0 done, 1 failed, 2 wrong usage. The
commands read the same [settings](settings.md) as the processes.

"""


def commands_page() -> str:
    """The page."""
    return HEAD + _ABOUT + "\n".join(part for name in _tree("").commands for part in _section([name], _tree(name)))


def _tree(called: str) -> Any:
    """The whole program, in which the command `called` is complete: the program imports only what is called."""
    return typer.main.get_command(program([called] if called else []))


def _section(path: list[str], parent: Any) -> Iterator[str]:
    command = parent.commands[path[-1]]
    yield f"{'#' * (len(path) + 1)} forwarder {' '.join(path)}\n\n{_text(command.help)}\n"
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
