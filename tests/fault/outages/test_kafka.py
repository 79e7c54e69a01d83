"""Kafka taken away under load: what was accepted was on the log before, and what was not accepted was told so."""

from tests.support.campaign.case import Case
from tools.servers.kafka_process import KafkaCluster


async def test_kafka_killed_and_brought_back(case: Case, kafka: KafkaCluster) -> None:
    async with case.load():
        for _ in range(case.times(short=1, long=10)):
            await case.made_more(case.draw(50, 300))
            await case.hit("kill -9 of the broker", kafka.kill)
            await case.wait(kafka.start)
    await case.verdict()
