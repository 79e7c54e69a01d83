"""The tree of commands, and the handling of their errors."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from typer import Exit, Option, Typer

from forwarder import __version__
from forwarder.process.loading import collect_rarely, load

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "up": (
        "forwarder.cli.run.up:up",
        "Run everything in one process: ingress, worker, query, notifier, housekeeping, console and simulated PMSs on one port.",
    ),
    "ingress": (
        "forwarder.cli.run.serve:ingress",
        "Accept reservation requests over HTTP and publish them to the log.",
    ),
    "worker": ("forwarder.cli.run.serve:worker", "Push submissions to the PMSs."),
    "query": (
        "forwarder.cli.run.serve:query",
        "Serve submissions and reservations over HTTP: their status, records and pages.",
    ),
    "notifier": ("forwarder.cli.run.serve:notifier", "Post results to customers' endpoints."),
    "housekeeping": (
        "forwarder.cli.run.serve:housekeeping",
        "Report the backlog as metrics, and remove guests' data whose retention is over.",
    ),
    "console": (
        "forwarder.cli.run.serve:console",
        "Serve the operators' console, /console: watch and repair the deployment in a browser.",
    ),
    "simulate": (
        "forwarder.cli.run.serve:simulate",
        "Serve simulated PMSs: /NAME/generic, /NAME/website-builder, /NAME/booking-sync/api/v3.",
    ),
    "listen": (
        "forwarder.operate.events.listen:listen",
        "Post result events to a program on your machine, signed as webhooks are, and print its responses; until Ctrl-C.",
    ),
    "scan": (
        "forwarder.operate.privacy.scan:scan",
        "Scan all stored data for card data: all tables of the database, all topics.",
    ),
    "status": (
        "forwarder.operate.deployment.status:status",
        "Show the deployment's state: problems first, most urgent first, each with the command that fixes it.",
    ),
    "doctor": (
        "forwarder.operate.deployment.doctor:doctor",
        "Check how the deployment is set up: settings, log, topics, store, clock, secret, keys and simulator, and say what to do.",
    ),
    "recover": (
        "forwarder.operate.deployment.recover_command:recover",
        "After a restore: bring the database up to date from the topics, or accept topics that were recreated.",
    ),
    "purge": ("forwarder.operate.privacy.guests:purge", "Delete submissions that were finished before a day."),
    "migrate": ("forwarder.operate.deployment.topics:migrate", "Create or upgrade the database tables."),
}
"""Each command by name: its location, as `load` takes it, and its line in the list of commands, which is also how its own help
begins."""

GROUPS: Final[Mapping[str, tuple[str, str]]] = {
    "topics": ("forwarder.operate.deployment.topics:COMMANDS", "The topics of the log."),
    "workspace": ("forwarder.operate.tenants.workspaces:COMMANDS", "Workspaces: who submits and reads reservations."),
    "key": ("forwarder.operate.tenants.workspaces:KEYS", "API keys of a workspace."),
    "account": (
        "forwarder.operate.tenants.account_commands:COMMANDS",
        "Integration accounts: their PMS, limits and settings.",
    ),
    "adapters": ("forwarder.operate.tenants.adapters:COMMANDS", "Adapters: list the kinds of PMS, and check one."),
    "doubles": (
        "forwarder.operate.submissions.look_up:DOUBLES",
        "Reservations that a PMS shows twice under one reference.",
    ),
    "submissions": (
        "forwarder.operate.submissions.settle:COMMANDS",
        "Submissions: search, show, look up, retry, settle and cancel them.",
    ),
    "dead-letters": (
        "forwarder.operate.submissions.replay:COMMANDS",
        "Messages that could not be delivered or read, and replaying them.",
    ),
    "secret": (
        "forwarder.operate.deployment.secrets:COMMANDS",
        "The deployment's secrets: list them, see what they seal, change them.",
    ),
    "results": ("forwarder.operate.events.results:COMMANDS", "Result events, as downstream services receive them."),
    "audit": (
        "forwarder.operate.deployment.audit:COMMANDS",
        "The audit trail: who did what, from where, and with what result.",
    ),
    "retention": ("forwarder.operate.privacy.guests:RETENTION", "How long workspaces keep their guests' data."),
    "guests": ("forwarder.operate.privacy.guests:COMMANDS", "Guests: erase one from all stored data."),
    "webhook": ("forwarder.operate.tenants.webhooks:COMMANDS", "Webhooks: where a workspace's results are posted."),
}
"""Groups of commands, as `COMMANDS`; the named mapping has its commands by name."""


_HELP: Final = "Carries vacation-rental reservations into property management systems: never lost, never booked twice."


def program(arguments: Sequence[str]) -> Typer:
    """Every command; imports only the one that `arguments` call, because the others are only listed."""
    app = Typer(name="forwarder", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.callback(help=_HELP)(_options)
    # An argument after an option of the program itself is not the command's name.
    called = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, (place, about) in {**COMMANDS, **GROUPS}.items():
        if name != called:
            app.command(name, help=about)(lambda: None)  # only listed
        elif name in GROUPS:
            group = Typer(help=about, no_args_is_help=True)
            group.callback()(lambda: None)  # typer would omit the name of a single command
            for member, command in load(place).items():
                settings = getattr(command, "context_settings", None)
                group.command(member, context_settings=settings)(_runnable(command))
            app.add_typer(group, name=name)
        else:
            app.command(name)(_runnable(load(place)))
    return app


def _runnable(command: Callable[..., Any]) -> Callable[..., None]:
    made: Callable[..., None] = load("forwarder.operate.command:runnable")(command)
    return made


def _tell_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"forwarder {__version__}\n")
        raise Exit


def _options(
    version: Annotated[
        bool, Option("--version", callback=_tell_version, is_eager=True, help="Print the version, and nothing else.")
    ] = False,
) -> None:
    """The options of the program itself."""


def _to_complete() -> Sequence[str]:
    """The words that a shell asks to complete, without the program's name; empty outside completion."""
    if "_FORWARDER_COMPLETE" not in os.environ:
        return ()
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    return typed.split()[1:]


def run() -> None:
    """Runs the command and exits with its code; an expected failure is one line on standard error, without a stack trace."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed before the start
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open until the end
    try:
        command = program(_to_complete() or sys.argv[1:])
        collect_rarely()
        command(prog_name="forwarder")
    except Exception as error:
        code: int | None = load("forwarder.cli.failures:exit_code")(error)
        if code is None:
            raise
        printable = load("forwarder.process.printable:printable")
        text: str = load("forwarder.cli.failures:message")(error)
        sys.stderr.write(f"forwarder: {printable(text)}\n")
        try:
            sys.stdout.flush()
        except OSError:  # Python would try again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(code)
