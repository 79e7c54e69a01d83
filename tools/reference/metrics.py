"""docs/reference/metrics.md: every metric that a process shows at /metrics."""

import ast
from collections.abc import Iterator
from typing import Final

from tools.reference.source import HEAD, documented, modules, table

_TYPES: Final = {"Counter": "counter", "Gauge": "gauge", "SnapshotGauge": "gauge", "Histogram": "histogram"}
_ABOUT: Final = """# Metrics

Every process serves its metrics at `/metrics`, in Prometheus' text format. Names that end in `_seconds` are in seconds. Labels take
their values from closed sets or are account ids, never request ids or guest data. With `--processes` one answer covers all
processes on the port. Python's and the process's own metrics (`process_…`, `python_…`) come from the Prometheus client.

"""


def metrics_page() -> str:
    """The page."""
    return HEAD + _ABOUT + table(["metric", "type", "labels", "meaning"], sorted(_rows()))


def _rows() -> Iterator[list[str]]:
    for _, tree in modules():
        for statement, text in documented(tree.body):
            call = getattr(statement, "value", None)
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _TYPES):
                continue
            literals = [ast.literal_eval(argument) for argument in call.args]
            if not (literals and str(literals[0]).startswith("forwarder_")):
                continue
            name, meaning, *labels = literals
            shown = ", ".join(f"`{label}`" for label in (labels[0] if labels else []))
            yield [f"`{name}`", _TYPES[call.func.id], shown, f"{meaning} {text}".strip()]
