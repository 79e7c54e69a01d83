"""How the flows are loaded: the scenarios that `make bench` measures, as data."""

from dataclasses import dataclass

_IN_A_BULK = 200


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way of loading a flow.

    `submissions` come over `connections`, each as soon as the one before was answered, or `rate` of them a second in all where that
    is not 0; `bulk` in one request where that is not 0. The PMS answers after `pms_ms` milliseconds, is asked `in_flight` at a time
    at the most, and answers 503 to a share of `pms_errors`. `worker_processes` 0: nothing is delivered, and accepting alone is
    measured. `embedded`: all of the forwarder in one process on SQLite files, as `forwarder up` runs it; the naive flow stays on
    Kafka and PostgreSQL. `timed`: the PMS notes when each came.
    `beside_baseline`: the naive flow has the same thing. `short`: part of the set that is measured unless
    told otherwise.
    """

    name: str
    title: str
    submissions: int = 20_000
    connections: int = 64
    rate: int = 0
    bulk: int = 0
    ingress_processes: int = 1
    worker_processes: int = 1
    in_flight: int = 64
    pms_ms: int = 0
    pms_errors: float = 0.0
    embedded: bool = False
    timed: bool = False
    beside_baseline: bool = True
    short: bool = False

    @property
    def delivers(self) -> bool:
        return self.worker_processes > 0


SCENARIOS: tuple[Scenario, ...] = (
    Scenario("accept", "accept alone, 1 process", worker_processes=0),
    Scenario("accept-2", "accept alone, 2 processes", ingress_processes=2, worker_processes=0, short=True),
    Scenario(
        "half",
        "accept alone, 2 processes, 3,700 / s",  # half of what they are to reach
        rate=3_700,
        ingress_processes=2,
        worker_processes=0,
    ),
    Scenario(
        "bulk",
        f"accept alone, 2 processes, bulks of {_IN_A_BULK}",
        submissions=60_000,
        connections=8,
        bulk=_IN_A_BULK,
        ingress_processes=2,
        worker_processes=0,
        beside_baseline=False,  # it has no bulk
        short=True,
    ),
    Scenario("low", "end to end, 50 / s", submissions=500, connections=8, rate=50, short=True),
    Scenario("pms-0", "end to end, PMS 0 ms, 64 in flight", short=True),
    Scenario("pms-0-256", "end to end, PMS 0 ms, 256 in flight", in_flight=256),
    Scenario("pms-50", "end to end, PMS 50 ms, 64 in flight", pms_ms=50),
    Scenario("pms-50-256", "end to end, PMS 50 ms, 256 in flight", pms_ms=50, in_flight=256, short=True),
    Scenario(
        "errors",
        "end to end, PMS 0 ms with 5 % errors",
        pms_errors=0.05,
        beside_baseline=False,  # it gives up what was refused once
    ),
    Scenario("embedded", "end to end, embedded, PMS 0 ms", submissions=10_000, embedded=True, short=True),
    Scenario("lag", "sender to PMS, 1,000 / s", submissions=10_000, rate=1_000, timed=True, beside_baseline=False),
    Scenario("pms-200", "PMS 200 ms, 64 in flight", submissions=5_000, pms_ms=200, beside_baseline=False),
    Scenario(
        "pms-200-2",
        "PMS 200 ms, 64 in flight for each of 2 worker processes",
        submissions=5_000,
        pms_ms=200,
        worker_processes=2,
        beside_baseline=False,
    ),
    Scenario("workers-2", "end to end, PMS 0 ms, 2 worker processes", worker_processes=2, beside_baseline=False),
)


def named(names: list[str] | None, *, every: bool) -> list[Scenario]:
    """Those of these names, every one, or the short set. Raises `KeyError` for a name that none has."""
    if names:
        by_name = {scenario.name: scenario for scenario in SCENARIOS}
        return [by_name[name] for name in names]
    return [scenario for scenario in SCENARIOS if every or scenario.short]
