"""What a bench stands on, started for it and stopped after it: a Kafka and a PostgreSQL."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from bench.flows import Ground
from tests.support.real_servers import RealServers


@contextmanager
def standing(console: Console, logs: Path | None) -> Iterator[Ground]:
    """Up for the block. `logs`: where the processes' logs are kept; nowhere if None. Raises `Unavailable`.

    Settings of the caller's own forwarder are taken out of the environment: that is not what is measured.
    """
    for name in [name for name in os.environ if name.startswith("FORWARDER_") and "TEST" not in name]:
        del os.environ[name]
    with TemporaryDirectory() as temporary, RealServers() as servers:
        kept = logs or Path(temporary)
        kept.mkdir(parents=True, exist_ok=True)
        console.print(*servers.planned(), sep="\n")
        yield Ground(servers.kafka.address(), servers.postgres.address(), servers.reaper, kept)
