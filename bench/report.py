"""What a run of the benchmark prints: a table for people, JSON lines for programs."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.measure import Measurement

_FIGURES: tuple[tuple[str, Callable[[Measurement], float], str], ...] = (
    ("accepted / s", lambda m: m.accept_rate, ",.0f"),
    ("accept p50, ms", lambda m: m.p50_ms, ",.1f"),
    ("accept p99, ms", lambda m: m.p99_ms, ",.1f"),
    ("end to end / s", lambda m: m.end_to_end_rate, ",.0f"),
    ("end to end, s", lambda m: m.end_to_end_seconds, ",.2f"),
)


def show(measurements: Sequence[Measurement], console: Console) -> None:
    """One column a flow (medians, where there were several rounds), and the ratio of the first to the last."""
    by_flow: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        by_flow.setdefault(measurement.flow, []).append(measurement)
    table = Table()
    table.add_column("")
    for flow in by_flow:
        table.add_column(flow, justify="right")
    if len(by_flow) > 1:
        table.add_column("ratio", justify="right")
    for title, figure, form in _FIGURES:
        values = [median(figure(m) for m in runs) for runs in by_flow.values()]
        ratio = [f"{values[0] / values[-1]:.2f}"] if len(values) > 1 else []
        table.add_row(title, *(format(value, form) for value in values), *ratio)
    for title, tell in (
        ("answers", _answers),
        ("confirmed", _confirmed),
        ("made in the PMS", _made),
        ("read by pages", _read),
    ):
        table.add_row(title, *(tell(runs[-1]) for runs in by_flow.values()))
    console.print(table)


def _answers(measurement: Measurement) -> str:
    return ", ".join(f"{count:,} x {status}" for status, count in measurement.statuses.items())


def _confirmed(measurement: Measurement) -> str:
    return f"{measurement.confirmed:,}"


def _made(measurement: Measurement) -> str:
    return f"{measurement.made:,} ({measurement.duplicates} twice)"


def _read(measurement: Measurement) -> str:
    return "" if measurement.read_back is None else f"{measurement.read_back:,} with the warm-up"


def append(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """One JSON object a line."""
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
