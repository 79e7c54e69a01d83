"""`forwarder topics …` and `forwarder migrate`: the topics of the log, and the tables of the database."""

import shlex
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer

from forwarder.assembly.backend import Backend, make_database_roles, migrate_backend
from forwarder.cli.backend import with_backend
from forwarder.cli.output import AsJson, WrongUsage, say, show_json, show_rows
from forwarder.cli.run.serve import settings_and_logging
from forwarder.settings import Distributed, Embedded
from forwarder.topics.kafka.security import acls, arguments


def commands() -> typer.Typer:
    """acls, create, list"""
    group = typer.Typer(help="The topics of the log.", no_args_is_help=True)
    group.command("acls")(print_acls)
    group.command("create")(create)
    group.command("list")(list_topics)
    return group


def create(
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Partitions of each topic. By default the setting.")
    ] = None,
    retention_days: Annotated[
        int | None,
        typer.Option(min=1, max=3650, help="How many days each topic keeps a message. Default: the brokers' setting."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create the topics that do not exist yet."""
    retention = None if retention_days is None else timedelta(days=retention_days)

    async def run(backend: Backend) -> tuple[list[str], dict[str, int], int]:
        if retention is not None and isinstance(backend.settings.backend, Embedded):
            raise WrongUsage("--retention-days is for Kafka: the embedded log keeps messages for 7 days.")
        created = list(await backend.create_topics(partitions, retention=retention))
        async with backend.log.admin() as admin:
            found = await admin.list()
        wanted = partitions or backend.settings.environment.partitions
        names = backend.settings.topics.all()
        return created, {name: found[name] for name in names if found.get(name, wanted) != wanted}, wanted

    created, others, wanted = with_backend(run)
    if as_json:
        show_rows([{"topic": name} for name in created], ("topic",), as_json=True)
    else:
        lines = [f"Topic {name} created." for name in created]
        lines += [
            f"Topic {name} has {count} partitions, not {wanted}. It is left as it is: set FORWARDER_PARTITIONS={count}, or add "
            "partitions with kafka-topics.sh --alter."
            for name, count in others.items()
        ]
        say("\n".join(lines) or "All topics exist.")


def list_topics(as_json: AsJson = False) -> None:
    """List the topics and their partitions."""

    async def run(backend: Backend) -> list[dict[str, object]]:
        async with backend.log.admin() as admin:
            found = await admin.list()
        return [{"topic": name, "partitions": found.get(name)} for name in backend.settings.topics.all()]

    show_rows(with_backend(run), ("topic", "partitions"), as_json=as_json)


def print_acls(
    user: Annotated[
        str, typer.Option(help="The users: {stage} is replaced by ingress, worker, query, notifier, operator.")
    ] = "User:forwarder-{stage}",
    command_config: Annotated[
        str | None, typer.Option(help="The client properties file for kafka-acls, for its --command-config.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the kafka-acls commands that let each stage's Kafka user do what it needs, and nothing else."""
    settings = settings_and_logging("warning")
    if not isinstance(settings.backend, Distributed):
        raise WrongUsage("ACLs are for Kafka (FORWARDER_KAFKA_BOOTSTRAP_SERVERS): the embedded log has no users.")
    by_stage = acls(settings.topics, settings.worker.group, settings.notifier.group)
    if as_json:
        rows = [
            {"stage": stage, "user": user.replace("{stage}", stage), **asdict(acl)}
            for stage, allowed in by_stage.items()
            for acl in allowed
        ]
        show_rows(rows, ("stage", "user", "operation", "topics", "groups"), as_json=True)
        return
    tool = ["kafka-acls.sh", "--bootstrap-server", settings.backend.bootstrap_servers]
    tool += ["--command-config", command_config] if command_config else []
    for stage, allowed in by_stage.items():
        for acl in allowed:
            typer.echo(shlex.join([*tool, *arguments(acl, user.replace("{stage}", stage))]))


def migrate(
    roles: Annotated[
        bool,
        typer.Option("--roles", help="Also create a PostgreSQL role for each stage, with the least privileges."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create or upgrade the database tables. Safe to repeat, and to run concurrently."""
    settings = settings_and_logging("warning")
    applied = migrate_backend(settings)
    made = make_database_roles(settings) if roles else []
    if as_json:
        show_json({"applied": list(applied), **({"roles": list(made)} if roles else {})})
        return
    say(f"Applied: {', '.join(applied)}." if applied else "Up to date.")
    if roles:
        say(
            f"Roles: {', '.join(made)}. Make a user for each process: CREATE ROLE … LOGIN PASSWORD … IN ROLE {made[0]}."
        )
