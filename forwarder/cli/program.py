"""The tree of commands, and the handling of their errors."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from typer import Exit, Option, Typer

from forwarder import __version__
from forwarder.process.loading import collect_rarely, load


def _table(text: str) -> Mapping[str, tuple[str, str]]:
    lines = (line.split(maxsplit=2) for line in text.strip().replace("\n  ", "  ").splitlines())
    return {name: (f"forwarder.{place}", about) for name, place, about in lines}


COMMANDS: Final = _table("""
up cli.run.up:up
  Run everything in one process: ingress, worker, query, notifier, housekeeping, console and simulated PMSs on one port.
ingress cli.run.serve:ingress  Accept reservation requests over HTTP and publish them to the log.
worker cli.run.serve:worker  Push submissions to the PMSs.
query cli.run.serve:query  Serve submissions and reservations over HTTP: their status, records and pages.
notifier cli.run.serve:notifier  Post results to customers' endpoints.
housekeeping cli.run.serve:housekeeping  Report the backlog as metrics, and remove guests' data whose retention is over.
console cli.run.serve:console  Serve the operators' console, /console: watch and repair the deployment in a browser.
simulate cli.run.serve:simulate  Serve simulated PMSs: /NAME/generic, /NAME/website-builder, /NAME/booking-sync/api/v3.
listen operate.results:listen
  Post result events to a program on your machine, signed as webhooks are, and print its responses; until Ctrl-C.
scan operate.scan:scan  Scan all stored data for card data: all tables of the database, all topics.
status operate.deployment.status:status
  Show the deployment's state: problems first, most urgent first, each with the command that fixes it.
doctor operate.deployment.doctor:doctor
  Check how the deployment is set up: settings, log, topics, store, clock, secret, keys and simulator, and say what to do.
recover operate.deployment.recovery:recover
  After a restore: bring the database up to date from the topics, or accept topics that were recreated.
purge operate.guests:purge  Delete submissions that were finished before a day.
migrate operate.deployment.topics:migrate  Create or upgrade the database tables.
""")
"""Each command by name: its location, as `load` takes it, and its line in the list, which is also how its own help begins."""

GROUPS: Final = _table("""
topics operate.deployment.topics:COMMANDS  The topics of the log.
workspace operate.tenants.workspaces:COMMANDS  Workspaces: who submits and reads reservations.
key operate.tenants.workspaces:KEYS  API keys of a workspace.
account operate.tenants.account_commands:COMMANDS  Integration accounts: their PMS, limits and settings.
adapters operate.tenants.adapters:COMMANDS  Adapters: list the kinds of PMS, and check one.
doubles operate.submissions.look_up:DOUBLES  Reservations that a PMS shows twice under one reference.
submissions operate.submissions.settle:COMMANDS  Submissions: search, show, look up, retry, settle and cancel them.
dead-letters operate.submissions.dead_letters:COMMANDS  Messages that could not be delivered or read, and replaying them.
secret operate.deployment.secrets:COMMANDS  The deployment's secrets: list them, see what they seal, change them.
results operate.results:COMMANDS  Result events, as downstream services receive them.
audit operate.deployment.audit:COMMANDS  The audit trail: who did what, from where, and with what result.
retention operate.guests:RETENTION  How long workspaces keep their guests' data.
guests operate.guests:COMMANDS  Guests: erase one from all stored data.
webhook operate.tenants.webhooks:COMMANDS  Webhooks: where a workspace's results are posted.
""")
"""Groups of commands, as `COMMANDS`; the named mapping has its commands by name."""


def program(arguments: Sequence[str]) -> Typer:
    """Every command; imports only the one that `arguments` call, because the others are only listed."""
    app = Typer(name="forwarder", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
    promise = "Carries vacation-rental reservations into property management systems: never lost, never booked twice."
    app.callback(help=promise)(_options)
    # An argument after an option of the program itself is not the command's name.
    called = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, (place, about) in {**COMMANDS, **GROUPS}.items():
        if name != called:
            app.command(name, help=about)(lambda: None)  # only listed
            continue
        runnable: Callable[..., Any] = load("forwarder.operate.command:runnable")
        if name in GROUPS:
            group = Typer(help=about, no_args_is_help=True)
            group.callback()(lambda: None)  # typer would omit the name of a single command
            for member, command in load(place).items():
                group.command(member, context_settings=getattr(command, "context_settings", None))(runnable(command))
            app.add_typer(group, name=name)
        else:
            app.command(name)(runnable(load(place)))
    return app


def _print_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"forwarder {__version__}\n")
        raise Exit


def _options(
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version, and nothing else.")
    ] = False,
) -> None:
    """The options of the program itself."""


def run() -> None:
    """Runs the command and exits with its code; an expected failure is one line on standard error, without a stack trace."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed before the start
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open until the end
    try:
        words = sys.argv
        if "_FORWARDER_COMPLETE" in os.environ:  # a shell asks how these can go on
            words = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or "").split()
        command = program(words[1:] or sys.argv[1:])
        collect_rarely()
        command(prog_name="forwarder")
    except Exception as error:
        code: int | None = load("forwarder.cli.failures:exit_code")(error)
        if code is None:
            raise
        printable = load("forwarder.observability.logging:printable")
        text: str = load("forwarder.cli.failures:message")(error)
        sys.stderr.write(f"forwarder: {printable(text)}\n")
        try:
            sys.stdout.flush()
        except OSError:  # Python would try again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(code)
