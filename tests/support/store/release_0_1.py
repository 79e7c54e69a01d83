"""A database as release 0.1 left it."""

from alembic import command
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Column, Connection, Text, text

from forwarder.store.migrate import alembic_config, create_tables

_TABLES = ("suspects", "set_aside", "rate_buckets", "recoveries", "log_gaps", "webhook_secrets")
_INDEXES = {
    "reservations_stay": "reservations",
    "reservations_doubles": "reservations",
    "outbox_set_aside": "outbox",
}
_COLUMNS = {
    "reservations": "same_key stay_key similar_to conflicting_at api_key_id target evidence doubles",
    "outbox": "faults error_id",
    "workers": "checked",
    "processes": "failing",
    "integration_accounts": "similar settles_seconds same_pms_before",
    "api_keys": "name",
    "workspaces": "limit_requests limit_seconds",
    "webhook_endpoints": "account_ids property_ids header_names headers asymmetric",
}


def make_tables_of_0_1(connection: Connection) -> None:
    """Makes them in an empty database: today's, without all that came since."""
    create_tables(connection)
    run = Operations(MigrationContext.configure(connection))
    for table in _TABLES:
        run.drop_table(table)
    for index, table in _INDEXES.items():
        run.drop_index(index, table)
    for table, names in _COLUMNS.items():
        for name in names.split():
            run.drop_column(table, name)
    for name in ("safeguards", "sent_safeguards"):
        run.add_column("reservations", Column(name, Text))
    config = alembic_config()
    config.attributes |= {"connection": connection, "applied": []}
    command.stamp(config, "0001")
    assert connection.scalar(text("SELECT version_num FROM alembic_version")) == "0001"
