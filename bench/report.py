"""What a run of the benchmark says: sheets for people, on the terminal or as Markdown, and JSON lines for programs."""

import json
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.measure import Measurement
from bench.processes import StartUp
from bench.scenarios import SCENARIOS

_OURS = "forwarder"
_REFERENCES = ("baseline", "goref-same")  # of which a run has one
_CPU = ("ingress", "worker", "Kafka", "PostgreSQL", "PMS", "generator")
_Figure = Callable[[Measurement], float | None]


_LAGS: Sequence[tuple[str, _Figure, str]] = (
    ("to the PMS, p50, ms", lambda m: m.to_pms_p50_ms, ",.1f"),
    ("p99, ms", lambda m: m.to_pms_p99_ms, ",.1f"),
)


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table. The first column is text, the others are figures."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def show(self, console: Console) -> None:
        """Print it."""
        table = Table(self.columns[0])
        for column in self.columns[1:]:
            table.add_column(column, justify="right")
        for row in self.rows:
            table.add_row(*row)
        console.print(table)

    def markdown(self) -> str:
        """The same."""
        rule = ["---", *["---:"] * (len(self.columns) - 1)]
        return "\n".join(f"| {' | '.join(row)} |" for row in (self.columns, rule, *self.rows))


def sheets(measurements: Sequence[Measurement], start_ups: Sequence[StartUp]) -> list[Sheet]:
    """Speed, what it costs, start-up."""
    return [_speed(measurements), _cost(measurements), _start(start_ups)]


def progress(measurement: Measurement) -> str:
    """What one round came to, in a line."""
    delivered = "" if measurement.end_to_end_rate is None else f", end to end {measurement.end_to_end_rate:,.0f} / s"
    own = f"{_own(measurement):,.0f} µs CPU of its own a submission"
    return f"{measurement.flow}: accepted {measurement.accept_rate:,.0f} / s{delivered}, {own}"


def _speed(measurements: Sequence[Measurement]) -> Sheet:
    figures: tuple[tuple[str, _Figure, str], ...] = (
        ("accepted / s", lambda m: m.accept_rate, ",.0f"),
        ("p50, ms", lambda m: m.p50_ms, ",.1f"),
        ("p99, ms", lambda m: m.p99_ms, ",.1f"),
        ("end to end / s", lambda m: m.end_to_end_rate, ",.0f"),
        *(_LAGS if any(m.to_pms_p99_ms is not None for m in measurements) else ()),
    )
    rows = [
        [
            title,
            *(_spread([figure(m) for m in runs], form) for _, figure, form in figures),
            _ratio(_rate, runs, others),
            _answers(runs[-1]),
        ]
        for title, runs, others in _by_scenario(measurements)
    ]
    return Sheet(["scenario", *(name for name, _, _ in figures), f"x {_reference(measurements)}", "answers"], rows)


def _cost(measurements: Sequence[Measurement]) -> Sheet:
    rows = []
    for title, runs, others in _by_scenario(measurements):
        cells = [_spread([_us(m, name) for m in runs], ",.0f", wide=False) for name in _CPU]
        own = _spread([_own(m) for m in runs], ",.0f")
        elsewhere = _spread([m.elsewhere for m in runs], ".2f", wide=False)
        rows.append([title, own, _ratio(_own, runs, others), *cells, elsewhere])
    return Sheet(
        ["CPU µs a submission", "own in all", f"x {_reference(measurements)}", *_CPU, "elsewhere, cores"], rows
    )


def _start(start_ups: Sequence[StartUp]) -> Sheet:
    rows = []
    for role, processes in sorted({(each.role, each.processes) for each in start_ups}):
        alike = [each for each in start_ups if (each.role, each.processes) == (role, processes)]
        rows.append(
            [
                role if processes == 1 else f"{role}, {processes} processes",
                _spread([each.seconds for each in alike], ".2f"),
                _spread([each.cpu_seconds for each in alike], ".2f"),
                _spread([each.megabytes for each in alike], ".0f"),
            ]
        )
    return Sheet(["start-up", "ready after, s", "CPU, s", "memory, MB"], rows)


def _by_scenario(
    measurements: Sequence[Measurement],
) -> Iterable[tuple[str, Sequence[Measurement], Sequence[Measurement]]]:
    """Each scenario's title and runs with those of the reference to compare them with, ours first; the reference's with none."""
    reference = _reference(measurements)
    flows = dict.fromkeys([_OURS, *(m.flow for m in measurements)])
    for scenario in SCENARIOS:
        of_it = {flow: [m for m in measurements if (m.scenario, m.flow) == (scenario.name, flow)] for flow in flows}
        for flow, runs in of_it.items():
            if runs:
                title = scenario.title if flow == _OURS else f"{scenario.title} ({flow})"
                yield title, runs, [] if flow == reference else of_it.get(reference, [])


def _reference(measurements: Sequence[Measurement]) -> str:
    """The flow that the others are a ratio to."""
    flows = {m.flow for m in measurements}
    return next((name for name in _REFERENCES if name in flows), _REFERENCES[0])


def _rate(measurement: Measurement) -> float | None:
    return measurement.end_to_end_rate or measurement.accept_rate


def _us(measurement: Measurement, name: str) -> float | None:
    return measurement.cpu_us.get(name)


def _own(measurement: Measurement) -> float:
    """Of the flow's own processes."""
    return sum(measurement.cpu_us.get(name, 0.0) for name in ("ingress", "worker", "query", "up"))


def _spread(values: Sequence[float | None], form: str, *, wide: bool = True) -> str:
    """The median, and from the least to the most where there are several; nothing where one is missing."""
    known = [value for value in values if value is not None]
    if len(known) < max(len(values), 1):
        return ""
    middle = format(median(known), form)
    return f"{middle} ({min(known):{form}}-{max(known):{form}})" if wide and len(known) > 1 else middle


def _ratio(figure: _Figure, ours: Sequence[Measurement], others: Sequence[Measurement]) -> str:
    mine, theirs = ([value for m in runs if (value := figure(m))] for runs in (ours, others))
    return f"{median(mine) / median(theirs):.2f}" if mine and theirs else ""


def _answers(measurement: Measurement) -> str:
    return ", ".join(f"{count:,} x {status}" for status, count in measurement.statuses.items())


def append(path: Path, measurement: Measurement) -> None:
    """One JSON object, as a line."""
    conditions = {"python": platform.python_version(), "cores": os.cpu_count()}
    with path.open("a") as file:
        file.write(json.dumps({**conditions, **measurement.as_json()}) + "\n")
