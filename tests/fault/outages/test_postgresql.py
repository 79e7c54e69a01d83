"""PostgreSQL taken away under load: the log alone is needed to accept, and what was accepted waits there."""

from tests.fault.campaign.case import Case
from tests.fault.campaign.judge import Expected
from tools.servers.postgres.process import PostgresServer


async def test_postgresql_killed_and_brought_back(case: Case, postgres: PostgresServer) -> None:
    async with case.load():
        for _ in range(case.times(short=1, long=10)):
            await case.made_more(case.some(50, 300))
            await case.hit("kill -9 of PostgreSQL", postgres.kill)
            await case.wait(postgres.start)
    await case.verdict(Expected(all_accepted=True))


async def test_postgresql_connections_cut(case: Case) -> None:
    """All of them at once, again and again, as a firewall or a failover does."""
    cut = "select pid::text, pg_terminate_backend(pid)::int from pg_stat_activity where application_name like 'forwarder%'"
    async with case.load():
        for _ in range(case.times(short=3, long=50)):
            await case.made_more(case.some(20, 100))
            while not await case.service.rows(cut):  # there is not one at every moment
                pass
            case.injected("all connections to PostgreSQL cut")
    await case.verdict(Expected(all_accepted=True))
