"""What a bench stands on, started for it and stopped after it: a Kafka and a PostgreSQL."""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from bench.flows import Ground
from bench.go_tools import GoTools
from bench.outcomes import Stalled
from bench.processes import CommandFailed
from tools.servers.ladder import Unavailable
from tools.servers.real_servers import RealServers
from tools.servers.server_process import ServerFailed


@contextmanager
def standing(
    console: Console, logs: Path | None, go_sources: Path | None = None, bento: Path | None = None
) -> Iterator[Ground]:
    """Up for the block. `logs`: where the processes' logs are kept; nowhere if None. `go_sources`: the tools in Go are built of
    these and used. `bento`: its binary. Raises `Unavailable`, and `CommandFailed` where a tool does not compile.

    Settings of the caller's own forwarder are taken out of the environment: that is not what is measured.
    """
    for name in [name for name in os.environ if name.startswith("FORWARDER_") and "TEST" not in name]:
        del os.environ[name]
    with TemporaryDirectory() as temporary, RealServers() as servers:
        kept = logs or Path(temporary)
        kept.mkdir(parents=True, exist_ok=True)
        console.print(*servers.planned(), sep="\n")
        go = None if go_sources is None else GoTools.build(go_sources, Path(temporary) / "go", bento)
        yield Ground(servers.kafka.address(), servers.postgres.address(), servers.reaper, kept, go)


def judged(console: Console, logs: Path | None, measure: Callable[[Ground], Coroutine[Any, Any, list[str]]]) -> int:
    """Measure on new ground; the exit code: 1 when something could not be started or did not finish, or when something is not as it
    should be, which `measure` returns in words, and standard error is told."""
    try:
        with standing(console, logs) as ground:
            wrong = asyncio.run(measure(ground))
    except (Unavailable, ServerFailed, CommandFailed, Stalled) as failure:
        wrong = [f"broken off: {failure}"]
    for each in wrong:
        print(each, file=sys.stderr)
    return 1 if wrong else 0
