"""`make net`: the mutants and where they were found, then histories of the product as it is.

python -m tests.net                                   everything, as `make net`
python -m tests.net mutants [ID …] [--histories N]    the table of mutants
python -m tests.net histories [--first N] [--count N] [--hours H] [--backend postgres]
python -m tests.net story SEED                        one history, line by line
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import structlog

from forwarder.store.migrate import migrate
from tests.mutants.catalogue import MUTANTS, Mutant
from tests.mutants.hunting import Hunt, hunt, remember
from tests.net import page
from tests.net.histories import Plan, live, pair_coverage, plan_of, shrink
from tests.net.moves import MOVES
from tools.servers.postgres.databases import new_database
from tools.servers.real_servers import RealServers

_DEFAULT_COUNT: Final = 100

Say = Callable[[str], None]


def drop_events(_logger: object, _method: str, _event: Any) -> Any:
    """A processor for structlog: nothing is logged."""
    raise structlog.DropEvent


@contextmanager
def migrated_database(backend: str = "embedded") -> Iterator[str]:
    """A new migrated database of SQLite, or on a PostgreSQL that is found or started as for the suites."""
    with ExitStack() as stack:
        if backend == "embedded":
            url = f"sqlite+aiosqlite:///{Path(stack.enter_context(TemporaryDirectory(prefix='net-'))) / 'net.sqlite3'}"
        else:
            server, runner = (
                stack.enter_context(RealServers()).postgres.address(),
                stack.enter_context(asyncio.Runner()),
            )
            database = AsyncExitStack()
            url = runner.run(database.enter_async_context(new_database(server)))
            stack.callback(lambda: runner.run(database.aclose()))
        asyncio.run(migrate(url))
        yield url


def _plan(mutant: Mutant, seed: int) -> Plan:
    values = {each: mutant.values.get(each, {}) for each in (*mutant.moves, "Submit")}
    return plan_of(seed, values, mutant.shape, mutant.settings, mutant.pauses, mutant.ordered)


def hunted(mutant: Mutant, histories: int, first: int | None, after: int) -> dict[str, Any]:
    """Within the process that has the mutant: the first history that shows it."""
    began, tried = time.process_time(), 0
    with migrated_database() as url:
        for seed in [*([] if first is None else [first]), *range(after + 1, histories + 1)]:
            outcome = live(url, _plan(mutant, seed))
            tried += 1
            if outcome.wrong:
                seconds = round(time.process_time() - began, 1)
                rule = outcome.wrong[0].partition(":")[0]
                steps = len(outcome.plan.steps)
                return {"seed": seed, "steps": steps, "tried": tried, "seconds": seconds, "rule": rule}
    seconds = round(time.process_time() - began, 1)
    return {"seed": None, "steps": 0, "tried": tried, "seconds": seconds, "rule": ""}


def mutants(ids: Sequence[str], histories: int, say: Say) -> bool:
    """Prints the table; whether all were found."""
    found: dict[str, int] = {}
    chosen = [each for each in MUTANTS if not ids or each.id in ids]
    say("| mutant | hole that it opens | seed | moves | histories | seconds | rule |")
    say("| --- | --- | ---: | ---: | ---: | ---: | --- |")
    for mutant in chosen:
        result = _found(mutant, histories)
        seed = "survived" if result.seed is None else result.seed
        row = (mutant.id, mutant.hole, seed, result.steps, result.tried, result.seconds, result.rule)
        say(f"| {' | '.join(map(str, row))} |")
        if result.seed is not None:
            found[mutant.id] = result.seed
            remember(found)
    say(f"\n{len(found)} of {len(chosen)} mutants found.")
    return len(found) == len(chosen)


def _found(mutant: Mutant, histories: int) -> Hunt:
    """What shows the mutant: not a history that breaks a guarantee without it, too."""
    result = hunt(mutant, histories)
    with migrated_database() as url:
        while result.seed is not None:
            outcome = live(url, _plan(mutant, result.seed))
            if not outcome.wrong:
                return result
            print(f"Without the mutant {mutant.id}, too:\n{outcome.told()}", file=sys.stderr, flush=True)
            result = hunt(mutant, histories, after=result.seed)
    return result


def histories(backend: str, first: int, count: int, hours: float, say: Say) -> bool:
    """Lives through them; whether all held. A failing one is shrunk and told."""
    pairs: Counter[tuple[str, str]] = Counter()
    began, lived, failed, steps = time.monotonic(), 0, 0, 0
    with migrated_database(backend) as database:
        seed = first
        while (hours and time.monotonic() - began < hours * 3600) or (not hours and lived < count):
            outcome = live(database, plan_of(seed))
            pairs.update(outcome.pairs)
            lived, steps = lived + 1, steps + len(outcome.plan.steps)
            if outcome.wrong:
                failed += 1
                print(shrink(database, outcome).told(), "\n", flush=True)
            seed += 1
    seconds = time.monotonic() - began
    say(f"\n{lived} histories of {steps} moves in {seconds:.0f} s: {failed} broke a guarantee.")
    say(f"{len(MOVES)} kinds of moves; {pair_coverage(pairs):.0%} of all pairs were seen one after the other.")
    return failed == 0


def main() -> int:
    """The command."""
    structlog.configure(processors=[drop_events])
    parser = argparse.ArgumentParser(prog="python -m tests.net")
    parser.add_argument("what", nargs="?", choices=["all", "mutants", "histories", "hunt", "story"], default="all")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--histories", type=int, default=60)
    parser.add_argument("--first", type=int)
    parser.add_argument("--after", type=int, default=0)
    parser.add_argument("--count", type=int, default=_DEFAULT_COUNT)
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--backend", choices=["embedded", "postgres"], default="embedded")
    parser.add_argument("--write", action="store_true", help="into docs/explanation/reliability.md")
    given = parser.parse_args()
    held, said = True, list[str]()

    def say(text: str) -> None:
        said.append(text)
        print(text, flush=True)

    if given.what == "hunt":
        (mutant,) = [each for each in MUTANTS if each.id == given.names[0]]
        print(json.dumps(hunted(mutant, given.histories, given.first, given.after)))
    if given.what == "story":
        with migrated_database(given.backend) as url:
            print(live(url, plan_of(int(given.names[0]))).told())
    if given.what == "mutants" or (given.what == "all" and not given.hours):
        held = mutants(given.names, given.histories, say)
    if given.what in {"all", "histories"}:
        held &= histories(given.backend, given.first or 1, given.count, given.hours, say)
    if given.write:
        page.write(said)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
