"""The revisions in `migrations/` put to work, by Alembic. Apart from `migrate`, so that a process whose database has them all does
without it: importing Alembic is a tenth of a start."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

_SCRIPTS = Path(__file__).parent / "migrations"


def upgrade(connection: Connection) -> list[str]:
    """Apply the revisions that are missing, in the transaction of `connection`; which they were, in order."""
    applied: list[str] = []
    config = alembic_config()
    config.attributes |= {"connection": connection, "applied": applied}
    command.upgrade(config, "head")
    return applied


def known_revisions() -> frozenset[str]:
    """Every revision that this version has."""
    return frozenset(script.revision for script in ScriptDirectory.from_config(alembic_config()).walk_revisions())


def alembic_config() -> Config:
    """Where the revisions are."""
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
