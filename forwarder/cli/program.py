"""The command's tree, and what becomes of what its commands raise."""

import sys
from collections.abc import Mapping, Sequence
from typing import Final

import typer

from forwarder.process.loading import collect_rarely, load

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "up": (
        "forwarder.cli.run.up:up",
        "Run everything in one process: ingress, worker, query, notifier, console and simulated PMSs on one port.",
    ),
    "ingress": ("forwarder.cli.run.serve:ingress", "Take reservation requests over HTTP and publish them to the log."),
    "worker": ("forwarder.cli.run.serve:worker", "Push submissions to the PMSs."),
    "query": (
        "forwarder.cli.run.serve:query",
        "Serve submissions and reservations over HTTP: their status, records and pages.",
    ),
    "notifier": ("forwarder.cli.run.serve:notifier", "Post results to customers' endpoints."),
    "console": (
        "forwarder.cli.run.serve:console",
        "Serve the operators' page, /console: what happens, and repairing it, in a browser.",
    ),
    "simulate": (
        "forwarder.cli.run.simulate:simulate",
        "Serve simulated PMSs: /NAME/generic, /NAME/website-builder, /NAME/booking-sync/api/v3.",
    ),
    "scan": (
        "forwarder.cli.operate.scan:scan",
        "Look for card data in everything that is stored: all tables of the database, all topics.",
    ),
    "status": (
        "forwarder.cli.operate.status:status",
        "Say how the deployment is: what is unwell, most urgent first, and the command that mends it.",
    ),
    "recover": (
        "forwarder.cli.operate.recover:recover",
        "After a restore: bring the database up with what the topics tell.",
    ),
    "migrate": ("forwarder.cli.operate.topics:migrate", "Create or upgrade the database tables."),
}
"""Each command by its name: where it is, as `load` takes it, and what the list of commands says of it, which is how its own help
begins."""

GROUPS: Final[Mapping[str, tuple[str, str]]] = {
    "topics": ("forwarder.cli.operate.topics:commands", "The topics of the log."),
    "workspace": ("forwarder.cli.manage.workspace:commands", "Workspaces: who submits and reads reservations."),
    "key": ("forwarder.cli.manage.key:commands", "API keys of a workspace."),
    "account": ("forwarder.cli.manage.account:commands", "Integration accounts: which PMS, and how it may be used."),
    "adapters": (
        "forwarder.cli.operate.adapters:commands",
        "Adapters: list the kinds of PMS, and check one.",
    ),
    "submissions": (
        "forwarder.cli.operate.submissions:commands",
        "Submissions: search, show, retry, settle and cancel them.",
    ),
    "dead-letters": (
        "forwarder.cli.operate.dead_letters:commands",
        "Messages that could not be delivered or read, and replaying them.",
    ),
    "secret": (
        "forwarder.cli.operate.secret:commands",
        "The deployment's secret: which there are, what is sealed to them, changing it.",
    ),
    "results": ("forwarder.cli.operate.results:commands", "Result events, as downstream services receive them."),
    "audit": (
        "forwarder.cli.operate.audit:commands",
        "The audit trail: who did what, and whether it was tampered with.",
    ),
    "retention": (
        "forwarder.cli.operate.retention:commands",
        "For how long workspaces keep their guests' data.",
    ),
    "guests": ("forwarder.cli.operate.guests:commands", "Guests: erase one, wherever its data is."),
    "webhook": ("forwarder.cli.manage.webhook:commands", "Webhooks: where a workspace's results are posted."),
}
"""Groups of commands, as `COMMANDS`: what is named makes the group."""


def program(arguments: Sequence[str]) -> typer.Typer:
    """Every command; of them that alone is imported which `arguments` call, for the others need only be listed."""
    app = typer.Typer(
        name="forwarder",
        help="Carries vacation-rental reservations into property management systems: never lost, never booked twice.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        add_completion=False,
    )
    # No option of the program itself takes a value.
    called = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, (place, about) in {**COMMANDS, **GROUPS}.items():
        if name != called:
            app.command(name, help=about)(_listed)
        elif name in GROUPS:
            app.add_typer(load(place)(), name=name)
        else:
            app.command(name)(load(place))
    return app


def _listed() -> None:
    """In the place of each command that was not called."""


def run() -> None:
    """Run the command and exit with its code; what went wrong is one line on standard error, never a stack trace for it."""
    try:
        command = program(sys.argv[1:])
        collect_rarely()
        command()
    except Exception as error:
        code: int | None = load("forwarder.cli.failures:exit_code")(error)
        if code is None:
            raise
        sys.stderr.write(f"forwarder: {error}\n")
        sys.exit(code)
