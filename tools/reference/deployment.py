"""The pages on setting up a deployment: commands, settings, also of the chart, database roles, assumptions about the servers."""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import typer

from forwarder.cli.program import program
from forwarder.oversight.assumptions import ASSUMPTIONS, Assumption
from forwarder.settings import Environment
from forwarder.store.migrate import ROLES
from tools.reference.source import HEAD, PACKAGE, documented, table

# --- docs/reference/commands.md ---------------------------------------------------------------------------------------------

_COMMANDS_ABOUT: Final = """# Commands

Every command that prints data also takes `--json` (not repeated below). Exit codes: 0 done, 1 failed, 2 wrong usage. The
commands read the same [settings](settings.md) as the processes.

At night begin with [At night](../operations/at-night.md).

"""

_NEEDS: Final = {
    "When something is wrong": "status doctor submissions dead-letters doubles recover",
    "Callers and their PMSs": "workspace key account adapters webhook",
    "Set up and start": "migrate topics up ingress worker query notifier housekeeping console",
    "Guests, secrets and the audit trail": "guests retention purge scan secret audit",
    "Try and develop": "simulate listen results",
}
"""The commands in the order in which they are needed."""


def commands_page() -> str:
    """Raises `ValueError` if a command has no place on it."""
    placed = [name for names in _NEEDS.values() for name in names.split()]
    if others := set(_tree("").commands).symmetric_difference(placed):
        raise ValueError(f"{', '.join(sorted(others))}: name each command once in {__name__}._NEEDS")
    parts = [
        f"## {need}\n\n" + "\n".join(part for name in names.split() for part in _command([name], _tree(name)))
        for need, names in _NEEDS.items()
    ]
    return HEAD + _COMMANDS_ABOUT + "\n".join(parts)


def _tree(called: str) -> Any:
    """The whole program, in which the command `called` is complete: the program imports only what is called."""
    return typer.main.get_command(program([called] if called else []))


def _command(path: list[str], parent: Any) -> Iterator[str]:
    command = parent.commands[path[-1]]
    paragraphs = (" ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n"))
    about = "\n\n".join(paragraphs)
    yield f"{'#' * (len(path) + 2)} forwarder {' '.join(path)}\n\n{about}\n"
    if subcommands := getattr(command, "commands", None):
        for name in subcommands:
            yield from _command([*path, name], command)
        return
    context = typer.Context(command)
    yield f"```\n{' '.join(['forwarder', *path, *command.collect_usage_pieces(context)])}\n```\n"
    found = (parameter.get_help_record(context) for parameter in command.params)
    records = [record for record in found if record is not None and record[0] != "--json"]
    if records:
        yield table(["", "meaning"], [[f"`{names}`", " ".join(about.split())] for names, about in records])


# --- docs/reference/settings.md, and deploy/helm/…/files/settings.txt ---------------------------------------------------------

_SETTINGS_ABOUT: Final = """# Settings

The forwarder is configured by environment variables. Times are in seconds. An out-of-range value, an unknown
`FORWARDER_…` variable, or an incomplete configuration (Kafka without PostgreSQL, or the reverse) is an error at start-up.
For encryption see [Secured Kafka and PostgreSQL](../operations/secured-kafka-and-postgresql.md) and
[HTTPS](../operations/secured-http.md). Configure the export of [traces](../operations/traces.md) with the standard
OpenTelemetry variables, `OTEL_…`.

"""


def settings_page() -> str:
    """Raises `ValueError` where a setting has no description."""
    texts, schema = descriptions(), Environment.model_json_schema()["properties"]
    rows = []
    for name, field in Environment.model_fields.items():
        if not texts.get(name):
            raise ValueError(f"Environment.{name} in forwarder/settings/environment.py needs a docstring")
        rows.append([f"`FORWARDER_{name.upper()}`", _shown(field.default), _bounds(schema[name]), texts[name]])
    return HEAD + _SETTINGS_ABOUT + table(["variable", "default", "range", "meaning"], rows)


def descriptions() -> Mapping[str, str]:
    """Each setting's docstring."""
    parts = [part for part in Environment.__mro__ if part.__module__.startswith(PACKAGE.name)]
    return {
        statement.target.id: text
        for part in parts
        for definition in ast.parse(inspect.getsource(part)).body
        if isinstance(definition, ast.ClassDef)
        for statement, text in documented(definition.body)
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }


def _shown(default: Any) -> str:
    if default in {None, ""}:
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def _bounds(schema: Mapping[str, Any]) -> str:
    least, most, above = (schema.get(key) for key in ("minimum", "maximum", "exclusiveMinimum"))
    if above is not None:
        return f"above {above:g}" + ("" if most is None else f", at most {most:g}")
    if least is not None and most is not None:
        return f"{least:g} to {most:g}"
    return "" if least is None else f"{least:d} or more" if isinstance(least, int) else f"{least:g} or more"


_OF_THE_CHART: Final = {
    *("kafka_bootstrap_servers", "kafka_security_protocol", "kafka_sasl_mechanism", "kafka_sasl_username"),
    *("kafka_sasl_oauth_token_url", "kafka_sasl_oauth_client_id", "kafka_sasl_oauth_scope"),
    *("topic_prefix", "partitions", "allow_plaintext", "trusted_proxies"),
    *("public_url", "lame_duck_seconds", "grace_seconds", "console_plaintext", "log_format"),
    *("host", "port", "data_dir", "revision"),
}
"""They have values of their own, or none that would do in a pod."""


def chart_settings() -> str:
    """The variables that the chart's values may have under `settings`, one a line: without secrets, which are references, and
    without what the chart sets itself."""
    known = Environment.model_fields
    free = [
        name
        for name in known
        if name not in _OF_THE_CHART and not name.endswith("_file") and f"{name}_file" not in known
    ]
    return "".join(f"FORWARDER_{name.upper()}\n" for name in free)


# --- docs/reference/database-roles.md ---------------------------------------------------------------------------------------

_ROLES_ABOUT: Final = """# Privileges of the database roles

The privileges that `forwarder migrate --roles` grants: [Database roles](../operations/database-roles.md). Empty: nothing.
*of columns*: only those that `forwarder/store/migrate.py` names. Only worker and operator read a sealed card or credential, only
notifier and operator the secret of a webhook.

"""


def roles_page() -> str:
    tables = sorted({each for granted in ROLES.values() for each in granted})
    rows = [
        [
            f"`{name}`",
            *(re.sub(r" \([^)]*\)", " *of columns*", ", ".join(each.get(name, ()))).lower() for each in ROLES.values()),
        ]
        for name in tables
    ]
    return HEAD + _ROLES_ABOUT + table(["table", *ROLES], rows)


# --- docs/operations/assumptions.md -----------------------------------------------------------------------------------------

_ASSUMPTIONS_ABOUT: Final = """# Assumptions about Kafka and PostgreSQL

The [guarantees](../explanation/guarantees.md) assume these settings of the servers. `forwarder doctor` checks them, and every
worker logs those that do not hold as `assumption.broken` when it starts. *failed*: a guarantee is broken. *warning*: it is weaker.
*info*: a choice; know what it means.

Isolation level, synchronous commit and time zone are not assumed: the forwarder sets them on each connection.

"""


def _subject(assumption: Assumption) -> str:
    return "topic" if assumption.checked.startswith("topic") else "database"


def assumptions_page() -> str:
    rows = [
        [
            f"`{each.name}`",
            _subject(each),
            each.severity,
            each.checked,
            each.why,
            each.remedy.replace("{topic}", "TOPIC"),
        ]
        for each in ASSUMPTIONS
    ]
    return HEAD + _ASSUMPTIONS_ABOUT + table(["assumption", "of", "severity", "checked by", "why", "what to do"], rows)
