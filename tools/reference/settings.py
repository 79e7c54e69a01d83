"""docs/reference/settings.md: every environment variable."""

import ast
import inspect
from collections.abc import Mapping
from typing import Any, Final

from forwarder.settings import Environment
from tools.reference.source import HEAD, PACKAGE, documented, table

_ABOUT: Final = """# Settings

The forwarder is configured by environment variables. Times are in seconds. An out-of-range value, an unknown
`FORWARDER_…` variable, or an incomplete configuration (Kafka without PostgreSQL, or the reverse) is an error at start-up.
For encryption see [Secured Kafka and PostgreSQL](../operations/secured-kafka-and-postgresql.md) and
[HTTPS](../operations/secured-http.md). Configure the export of [traces](../operations/traces.md) with the standard
OpenTelemetry variables, `OTEL_…`.

"""


def settings_page() -> str:
    """The page. Raises `ValueError` where a setting has no description."""
    texts, schema = descriptions(), Environment.model_json_schema()["properties"]
    rows = []
    for name, field in Environment.model_fields.items():
        if not texts.get(name):
            raise ValueError(f"Environment.{name} in forwarder/settings/environment.py needs a docstring")
        rows.append([f"`FORWARDER_{name.upper()}`", _shown(field.default), _bounds(schema[name]), texts[name]])
    return HEAD + _ABOUT + table(["variable", "default", "range", "meaning"], rows)


def descriptions() -> Mapping[str, str]:
    """Each setting's docstring."""
    parts = [part for part in Environment.__mro__ if part.__module__.startswith(PACKAGE.name)]
    return {
        statement.target.id: text
        for part in parts
        for statement, text in documented(_body(part))
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }


def _body(part: type) -> list[ast.stmt]:
    module = ast.parse(inspect.getsource(part))
    (definition,) = [node for node in module.body if isinstance(node, ast.ClassDef)]
    return definition.body


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
