"""Every message delivered again: what is known changes nothing."""

from aiokafka import AIOKafkaConsumer, TopicPartition

from forwarder.worker.parts import GROUP
from tests.fault.campaign.case import Case
from tests.fault.campaign.judge import Expected


async def test_every_message_delivered_again(case: Case) -> None:
    worker = case.deployment.processes["worker"]
    async with case.load():
        for _ in range(case.times(short=1, long=10)):
            await case.made_more(case.some(50, 300))
            await case.wait(worker.stop)
            case.injected("offsets set back to the beginning")
            await set_back(case)
            await case.wait(worker.start)
    evidence = await case.verdict(Expected(all_accepted=True))
    assert all(len({event.id for event in events}) == 1 for events in evidence.events.values())


async def set_back(case: Case) -> None:
    """Commit, for the workers' group while it has no member, that it is past nothing."""
    settings = case.deployment.site.settings
    prefix = settings["FORWARDER_TOPIC_PREFIX"]
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings["FORWARDER_KAFKA_BOOTSTRAP_SERVERS"],
        group_id=f"{prefix}{GROUP}",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        topic = f"{prefix}reservations.requests"
        partitions = [TopicPartition(topic, number) for number in range(int(settings["FORWARDER_PARTITIONS"]))]
        consumer.assign(partitions)
        await consumer.commit(dict.fromkeys(partitions, 0))
    finally:
        await consumer.stop()
