"""`forwarder topics …` and `forwarder migrate`: the topics of the log, and the tables of the database."""

from typing import Annotated

import typer

from forwarder.assembly.backend import Backend, make_database_roles, migrate_backend
from forwarder.cli.backend import with_backend
from forwarder.cli.output import AsJson, say, show_json, show_rows
from forwarder.cli.run.serve import settings_and_logging


def commands() -> typer.Typer:
    """create, list"""
    group = typer.Typer(help="The topics of the log.", no_args_is_help=True)
    group.command("create")(create)
    group.command("list")(list_topics)
    return group


def create(
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Partitions of each topic. By default the setting.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create the topics that do not exist yet."""

    async def run(backend: Backend) -> list[str]:
        return list(await backend.create_topics(partitions))

    created = with_backend(run)
    if as_json:
        show_rows([{"topic": name} for name in created], ("topic",), as_json=True)
    else:
        say("\n".join(f"Topic {name} created." for name in created) or "All topics exist.")


def list_topics(as_json: AsJson = False) -> None:
    """List the topics and their partitions."""

    async def run(backend: Backend) -> list[dict[str, object]]:
        async with backend.log.admin() as admin:
            found = await admin.list()
        return [{"topic": name, "partitions": found.get(name)} for name in backend.settings.topics.all()]

    show_rows(with_backend(run), ("topic", "partitions"), as_json=as_json)


def migrate(
    roles: Annotated[
        bool,
        typer.Option("--roles", help="Also make a PostgreSQL role for each stage, with what it needs and no more."),
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
