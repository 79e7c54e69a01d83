"""The command's tree, and what becomes of what its commands raise."""

import sys

import typer

from forwarder.cli import (
    account,
    adapters,
    dead_letters,
    demo,
    key,
    migrate,
    results,
    schemas,
    serve,
    simulate,
    submissions,
    topics,
    up,
    webhook,
    workspace,
)
from forwarder.cli.output import Failed, WrongUsage
from forwarder.runtime.data_dir import AlreadyRunning
from forwarder.settings import BadSettings
from forwarder.store.migrate import NotMigrated
from forwarder.store.port import StoreUnavailable
from forwarder.tenancy.deployment import NoSealingKey
from forwarder.tenancy.port import AlreadyExists, NotKnown, TenancyUnavailable
from forwarder.topics.port import LogUnavailable

_WRONG = (BadSettings, WrongUsage)
_FAILED = (
    Failed,
    NotMigrated,
    NoSealingKey,
    AlreadyRunning,
    AlreadyExists,
    NotKnown,
    StoreUnavailable,
    TenancyUnavailable,
    LogUnavailable,
)


def program() -> typer.Typer:
    """Every command."""
    app = typer.Typer(
        name="forwarder",
        help="Carries vacation-rental reservations into property management systems: never lost, never booked twice.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        add_completion=False,
    )
    app.command("up")(up.up)
    app.command("ingress")(serve.ingress)
    app.command("worker")(serve.worker)
    app.command("query")(serve.query)
    app.command("notifier")(serve.notifier)
    app.command("simulate")(simulate.simulate)
    app.command("migrate")(migrate.migrate)
    app.command("demo")(demo.demo)
    for name, group in {
        "topics": topics.commands,
        "workspace": workspace.commands,
        "key": key.commands,
        "account": account.commands,
        "adapters": adapters.commands,
        "submissions": submissions.commands,
        "dead-letters": dead_letters.commands,
        "results": results.commands,
        "webhook": webhook.commands,
        "schemas": schemas.commands,
    }.items():
        app.add_typer(group(), name=name)
    return app


def run() -> None:
    """Run the command and exit with its code; what went wrong is one line on standard error, never a stack trace for it."""
    try:
        program()()
    except _WRONG as error:
        _exit(error, 2)
    except _FAILED as error:
        _exit(error, 1)


def _exit(error: Exception, code: int) -> None:
    sys.stderr.write(f"forwarder: {error}\n")
    sys.exit(code)
