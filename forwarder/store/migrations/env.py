"""Run by Alembic, on the connection and in the transaction that `forwarder.store.migrate` hands it."""

from typing import Any

from alembic import context


def _note(ctx: Any, step: Any, heads: Any, run_args: Any) -> None:  # noqa: ARG001 - Alembic names them
    context.config.attributes["applied"].append(step.up_revision_id)


context.configure(connection=context.config.attributes["connection"], on_version_apply=_note)
context.run_migrations()
