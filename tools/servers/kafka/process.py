"""Apache Kafka as local processes: KRaft, one broker or three, each of which can be killed and brought back.

For tests and benchmarks. Writes only below the directory that the reaper gives it.
"""

import base64
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from tools.servers.kafka.jars import class_archive, jars
from tools.servers.reaper import Reaper
from tools.servers.server_process import LOCALHOST, Command, ServerFailed, ServerProcess, free_ports

T = TypeVar("T")

_JAVA_OPTIONS = (
    "-Xms128m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)
_SHORT_LIVED = ("-XX:TieredStopAtLevel=1",)
"""Without the compiler that pays off after minutes: a third less processor time until it serves."""
_STOP_SECONDS = 60.0
_RECOVERY_SECONDS = 300.0


def broker_properties(brokers: int) -> Mapping[str, str]:
    """What the tests want of a broker: small, quick to form groups, replicated where there are three."""
    replicas = str(min(3, brokers))
    in_sync = "2" if brokers > 1 else "1"
    return {
        "auto.create.topics.enable": "false",
        "num.partitions": "8",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": "4194304",
    }


@dataclass(frozen=True, slots=True)
class Listener:
    """One more way into the broker beside the plaintext one, and how it is told apart: `listener.name.<name>.…`."""

    name: str
    protocol: str
    port: int

    @property
    def address(self) -> str:
        """Its host is what a certificate names."""
        return f"localhost:{self.port}"


@dataclass(frozen=True, slots=True)
class _Node:
    """Where one node listens and keeps its data."""

    number: int
    home: Path
    broker_port: int
    controller_port: int

    @property
    def address(self) -> str:
        return f"{LOCALHOST}:{self.broker_port}"

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def configuration(self) -> Path:
        return self.home / "server.properties"


class KafkaBroker(ServerProcess):
    """One node, broker and controller in one. `stop` is a controlled shutdown, `kill` is kill -9."""

    def __init__(self, node: _Node, java: Sequence[str], reaper: Reaper) -> None:
        self.address = node.address
        self.data = node.data
        command = Command(
            name=f"Kafka broker {node.number}",
            arguments=[*java, "kafka.Kafka", str(node.configuration)],
            log=node.home / "broker.log",
            ready="Kafka Server started",
            ready_seconds=_RECOVERY_SECONDS,
            stop_seconds=_STOP_SECONDS,
        )
        super().__init__(command, reaper)


class KafkaCluster:
    """One broker (replication factor 1) or three (replication factor 3, two in sync), on the same ports throughout.

    All calls block: from a coroutine, use a thread. `start` raises `ServerFailed`; making one raises `Unavailable`
    where the jars cannot be had. What is measured is not `short_lived`. `listeners` are for a
    single broker, which gets `properties`, and its Java `system_properties`. `java`: the command that runs Kafka's programs.
    """

    def __init__(
        self,
        reaper: Reaper,
        *,
        brokers: int = 1,
        short_lived: bool = True,
        listeners: Sequence[Listener] = (),
        properties: Mapping[str, str] = MappingProxyType({}),
        system_properties: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.java = _short_lived(reaper) if short_lived else _java()
        java, *options = self.java
        of_brokers = [java, *(f"-D{name}={value}" for name, value in system_properties.items()), *options]
        self._cluster = _new_id()
        self._nodes = _lay_out(reaper.directory(), brokers, listeners, properties)
        self.brokers: Sequence[KafkaBroker] = [KafkaBroker(node, of_brokers, reaper) for node in self._nodes]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def start(self) -> None:
        """Start the brokers that do not run, let those go on that are frozen; return when each of them serves."""
        for node in self._nodes:
            _format(node, self._cluster)
        _together(KafkaBroker.start, self.brokers)

    def stop(self) -> None:
        _together(KafkaBroker.stop, self.brokers)

    def kill(self) -> None:
        """All at once, as when the power fails."""
        _together(KafkaBroker.kill, self.brokers)

    def restart(self) -> None:
        self.stop()
        self.start()


def _java(*options: str) -> Sequence[str]:
    return ["java", *_JAVA_OPTIONS, *options, "-cp", f"{jars()}/*"]


def _short_lived(reaper: Reaper) -> Sequence[str]:
    """With the classes as another broker left them: half the processor time until it serves."""

    def write(archive: Path) -> None:
        (node,) = _lay_out(reaper.directory(), 1)
        broker = KafkaBroker(node, _java(*_SHORT_LIVED, f"-XX:ArchiveClassesAtExit={archive}"), reaper)
        _format(node, _new_id())
        with suppress(ServerFailed):  # a Java that knows no such option
            broker.start()
            broker.stop()

    jars()
    archive = class_archive(write)
    return _java(*_SHORT_LIVED, *([f"-XX:SharedArchiveFile={archive}"] if archive else ()))


def add_scram_user(cluster: KafkaCluster, mechanism: str, user: str, password: str) -> None:
    """By Kafka's own tool, which takes as long as a broker to start. Raises `ServerFailed`."""
    added = f"{mechanism}=[password={password}]"
    change = ["--alter", "--add-config", added, "--entity-type", "users", "--entity-name", user]
    done = subprocess.run(
        [*cluster.java, "kafka.admin.ConfigCommand", "--bootstrap-server", cluster.bootstrap_servers, *change],
        capture_output=True,
        text=True,
        timeout=_STOP_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise ServerFailed(f"kafka-configs failed: {done.stdout}{done.stderr}")


def _lay_out(
    directory: Path,
    brokers: int,
    listeners: Sequence[Listener] = (),
    properties: Mapping[str, str] = MappingProxyType({}),
) -> list[_Node]:
    """A home for each node, with a configuration that names them all."""
    ports = free_ports(2 * brokers)
    nodes = [_Node(n + 1, directory / f"node-{n + 1}", ports[2 * n], ports[2 * n + 1]) for n in range(brokers)]
    for node in nodes:
        node.home.mkdir()
        settings = _node_properties(node, nodes, listeners) | dict(broker_properties(brokers)) | dict(properties)
        _write(node.configuration, settings)
    return nodes


def _format(node: _Node, cluster: str) -> None:
    """Mark its storage as the node's, where it is new. Kafka's own tool for that takes as long as a broker to start."""
    mark = node.data / "meta.properties"
    if not mark.exists():
        mark.parent.mkdir(exist_ok=True)
        identity = {"version": 1, "cluster.id": cluster, "node.id": node.number, "directory.id": _new_id()}
        _write(mark, identity)


def _write(file: Path, properties: Mapping[str, object]) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


def _new_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _node_properties(node: _Node, nodes: Sequence[_Node], listeners: Sequence[Listener]) -> dict[str, str]:
    others = "".join(f",{each.name}://{each.address}" for each in listeners)
    protocols = "".join(f",{each.name}:{each.protocol}" for each in listeners)
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.number),
        "controller.quorum.voters": ",".join(f"{each.number}@{LOCALHOST}:{each.controller_port}" for each in nodes),
        "listeners": f"PLAINTEXT://{node.address},CONTROLLER://{LOCALHOST}:{node.controller_port}{others}",
        "advertised.listeners": f"PLAINTEXT://{node.address}{others}",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(node.data),
    }


def _together(act: Callable[[T], None], targets: Sequence[T]) -> None:
    """On all at once: brokers of one cluster wait for each other."""
    with ThreadPoolExecutor(max(1, len(targets))) as threads:
        list(threads.map(act, targets))
