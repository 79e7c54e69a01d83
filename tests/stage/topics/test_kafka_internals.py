"""The private names of aiokafka that `internals` uses are still there, and mean what it takes them for."""

import inspect

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator, NoGroupCoordinator
from aiokafka.producer.message_accumulator import MessageAccumulator
from aiokafka.producer.sender import Sender
from aiokafka.producer.transaction_manager import TransactionManager

from tests.support.cases import for_each

USES = [
    (AIOKafkaClient.bootstrap, "self._sync_task = create_task(self._md_synchronizer())"),
    (AIOKafkaClient.close, "await self._sync_task"),
    (AIOKafkaProducer.__init__, "self._sender = Sender("),
    (AIOKafkaProducer.__init__, "self._closed = False"),
    (AIOKafkaProducer.__init__, "self._txn_manager = TransactionManager("),
    (TransactionManager.increment_sequence_number, "seq = self._sequence_numbers[tp] + increment"),
    (MessageAccumulator, "self._txn_manager.increment_sequence_number(batch.tp, batch.record_count)"),
    (AIOKafkaProducer.stop, "await self._sender.close()"),
    (AIOKafkaProducer.__del__, "if self._closed is False"),
    (Sender.close, "self._sender_task.cancel()"),
    (AIOKafkaConsumer.__init__, "self._client = AIOKafkaClient("),
    (AIOKafkaConsumer.stop, "await self._coordinator.close()"),
    (AIOKafkaConsumer.stop, "await self._fetcher.close()"),
    (AIOKafkaConsumer.stop, "await self._client.close()"),
    (GroupCoordinator.__init__, "self._coordination_task = create_task("),
    (GroupCoordinator, "self._heartbeat_task = create_task("),
    (GroupCoordinator, "self._commit_refresh_task = create_task("),
    (NoGroupCoordinator.__init__, "self._reset_committed_task = create_task("),
    (GroupCoordinator, "if self.generation > 0 and self._group_instance_id is None:"),
    (Fetcher.__init__, "self._fetch_task = create_task("),
    (Fetcher.close, "for x in self._pending_tasks"),
]


@for_each(("where", "code"), USES)
def test_aiokafka_still_has_what_is_used_of_it(where: object, code: str) -> None:
    assert code in inspect.getsource(where)  # type: ignore[arg-type]  # functions and classes


@pytest.mark.parametrize("coordinator", [GroupCoordinator, NoGroupCoordinator])
def test_a_coordinator_starts_no_other_task(coordinator: type) -> None:
    """`stop_consumer` would leave it running."""
    known = {"_coordination_task", "_heartbeat_task", "_commit_refresh_task", "_reset_committed_task"}
    started = {
        line.split("=")[0].strip().removeprefix("self.")
        for line in inspect.getsource(coordinator).splitlines()
        if "= create_task(" in line
    }
    assert {name for name in started if name.endswith("_task")} <= known
