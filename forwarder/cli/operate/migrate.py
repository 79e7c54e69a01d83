"""`forwarder migrate`: brings the database's tables up to date and publishes the public key that cards are sealed with."""

from forwarder.assembly.backend import migrate_backend
from forwarder.cli.output import AsJson, say, show_json
from forwarder.cli.run.starting import settings_and_logging


def migrate(as_json: AsJson = False) -> None:
    """Bring the database up to date. Safe to run again, and by several at once."""
    applied = migrate_backend(settings_and_logging("warning"))
    if as_json:
        show_json({"applied": list(applied)})
    else:
        say(f"Applied: {', '.join(applied)}." if applied else "Up to date.")
