"""PostgreSQL as a pair: a primary, and a streaming standby that has all that the primary acknowledged. Either may die."""

import asyncio

import asyncpg

from tools.servers.postgres.process import PostgresServer

_LOOK_SECONDS = 0.05
_SECONDS = 120.0
_WAL_KEPT = "8GB"


class Pair:
    """Both servers stand in `url`, and clients take the one that can be written to. `start`, `kill`: as `Engine` has them.

    The primary waits at each commit for the standby (`synchronous_standby_names`); without one, nothing is waited for.
    """

    def __init__(self, first: PostgresServer, second: PostgresServer) -> None:
        self.primary, self.standby = first, second
        self._paired = False
        self._hosts = ",".join(f"127.0.0.1:{each.port}" for each in (first, second))

    @property
    def url(self) -> str:
        return self.primary.url.replace(f"127.0.0.1:{self.primary.port}", self._hosts)

    def start(self) -> None:
        """Start what does not run."""
        self.primary.start()
        if self._paired:
            self.standby.start()
        else:
            self._execute(f"ALTER SYSTEM SET wal_keep_size = '{_WAL_KEPT}'")  # for a standby that was away
            self.rebuild()

    def kill(self) -> None:
        self.primary.kill()

    def stop(self) -> None:
        self.primary.stop()
        self.standby.stop()

    def fail_over(self) -> None:
        """The primary dies and the standby takes its place. There is no new standby before `rebuild`."""
        self.primary.kill()
        self.primary, self.standby, self._paired = self.standby, self.primary, False
        self._execute("SELECT pg_promote()", *_waiting_for(""))

    def rebuild(self) -> None:
        """The former primary comes back as the standby, with a new copy of all data."""
        self.standby.follow(self.primary)
        asyncio.run(self._until("state = 'streaming'"))
        self._execute(*_waiting_for("*"))
        asyncio.run(self._until("sync_state = 'sync'"))
        self._paired = True

    async def _until(self, condition: str) -> None:
        """Until the primary says so of its standby."""
        connection = await asyncpg.connect(self.primary.url)
        try:
            async with asyncio.timeout(_SECONDS):
                while not await connection.fetchval(f"SELECT count(*) FROM pg_stat_replication WHERE {condition}"):
                    await asyncio.sleep(_LOOK_SECONDS)
        finally:
            await connection.close()

    def _execute(self, *statements: str) -> None:
        async def execute() -> None:
            connection = await asyncpg.connect(self.primary.url)
            try:
                for each in statements:
                    await connection.execute(each)
            finally:
                await connection.close()

        asyncio.run(execute())


def _waiting_for(names: str) -> tuple[str, str]:
    return f"ALTER SYSTEM SET synchronous_standby_names = '{names}'", "SELECT pg_reload_conf()"
