"""Gauges that are replaced as a whole, and the processes of one port as one.

A gauge of the Prometheus client never drops a label's last value, and one without labels is 0 before it is set. A snapshot must be
able to disappear: an account that was removed, a number that this process no longer reads.

Where several processes serve one port, each keeps its snapshots in a file next to the client's."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client import REGISTRY
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

Values = Mapping[tuple[str, ...], float]

_DIRECTORY: Final = "PROMETHEUS_MULTIPROC_DIR"
_FILE: Final = "snapshot_{}.json"
_PROC: Final = Path("/proc")


class SnapshotGauge(Collector):
    """Exposes nothing while it has no values. Sums over several processes."""

    every: Final[dict[str, "SnapshotGauge"]] = {}

    def __init__(self, name: str, meaning: str, labels: Iterable[str] = ()) -> None:
        self.name = name
        self._meaning = meaning
        self.labels = tuple(labels)
        self.values: dict[tuple[str, ...], float] = {}
        self.every[name] = self
        REGISTRY.register(self)

    def replace(self, values: Values) -> None:
        """Replaces all values by these, keyed by label values."""
        self.values = dict(values)
        if (directory := os.environ.get(_DIRECTORY)) is not None:
            # The file that sibling processes read. Atomic, even if this process is killed.
            file = Path(directory, _FILE.format(os.getpid()))
            new = file.with_suffix(".new")
            rows = {name: list(gauge.values.items()) for name, gauge in self.every.items()}
            new.write_text(json.dumps(rows), encoding="utf-8")
            new.replace(file)

    def describe(self) -> Iterable[Metric]:
        return [Metric(self.name, self._meaning, "gauge")]

    def collect(self) -> Iterable[Metric]:
        return self.shown(self.values)

    def shown(self, values: Values) -> Iterator[Metric]:
        metric = Metric(self.name, self._meaning, "gauge")
        for given, number in values.items():
            metric.add_sample(self.name, dict(zip(self.labels, given, strict=True)), number)
        if values:
            yield metric


class SnapshotsOfAll(Collector):
    """The snapshots of all running processes of this port."""

    def collect(self) -> Iterable[Metric]:
        sums: dict[str, dict[tuple[str, ...], float]] = {}
        for file in Path(os.environ[_DIRECTORY]).glob(_FILE.format("*")):
            if (_PROC / file.stem.rpartition("_")[2]).exists():
                for name, rows in json.loads(file.read_text(encoding="utf-8")).items():
                    of_name = sums.setdefault(name, {})
                    for labels, number in rows:
                        of_name[tuple(labels)] = of_name.get(tuple(labels), 0.0) + number
        for name, values in sums.items():
            yield from SnapshotGauge.every[name].shown(values)


class ProcessesTogether(Collector):
    """The `process_…` metrics of all processes of this port: sums, the latest start, and the lowest limit. So a restart of any
    of them changes `process_start_time_seconds`."""

    _OTHERWISE: Final = {"process_start_time_seconds": max, "process_max_fds": min}

    def collect(self) -> Iterable[Metric]:
        found: dict[str, list[Metric]] = {}
        pids = _siblings()
        for pid in pids:
            for metric in ProcessCollector(pid=partial(str, pid), registry=None).collect():
                found.setdefault(metric.name, []).append(metric)
        for same in found.values():
            if len(same) < len(pids):
                continue  # a process may not allow others to see its number of open files
            together, *_ = same
            values = [metric.samples[0].value for metric in same]
            combine = self._OTHERWISE.get(together.samples[0].name, sum)
            together.samples = [together.samples[0]._replace(value=combine(values))]
            yield together


def _siblings() -> list[int]:
    """The ids of this process and its siblings; only its own where the system does not list them."""
    parent = os.getppid()
    try:
        return [int(each) for each in (_PROC / f"{parent}/task/{parent}/children").read_text().split()]
    except OSError:
        return [os.getpid()]
