"""Kafka and PostgreSQL as Docker containers, by testcontainers. Talks to the Docker daemon and to nothing else.

Docker's own packages take a second to import, and are needed only where there is a daemon.
"""

import os
import socket
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from tools.servers.kafka.process import broker_properties
from tools.servers.ladder import Unavailable
from tools.servers.postgres.process import DURABLE, NOT_DURABLE
from tools.servers.server_process import LOCALHOST, free_ports

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

_KAFKA_IMAGE = "apache/kafka:4.1.1"
_POSTGRES_IMAGE = "postgres:17-alpine"
_DAEMON = "unix:///var/run/docker.sock"
_DAEMON_SECONDS = 1
_START_SECONDS = 60


@cache
def docker_obstacle() -> str | None:
    """Why Docker cannot be used here; None where its daemon answers at once. Asked once a run."""
    if not _socket_answers(os.environ.get("DOCKER_HOST", _DAEMON)):
        return "no Docker daemon"
    import docker
    from docker.errors import DockerException

    try:
        client = docker.from_env(timeout=_DAEMON_SECONDS)  # speaks the daemon's own version, which it asks for
    except (DockerException, OSError) as error:
        return f"the Docker daemon does not answer: {error}"
    try:
        client.ping()
    except (DockerException, OSError) as error:
        return f"the Docker daemon does not answer: {error}"
    finally:
        client.close()
    return None


def _socket_answers(host: str) -> bool:
    """Whether something listens on a Unix socket; True for other addresses. Docker's own client leaks the socket that fails."""
    scheme, _, path = host.partition("://")
    if "unix" not in scheme:
        return True
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex("/" + path.lstrip("/")) == 0


class KafkaInDocker:
    """One broker, with the settings of the local one."""

    origin = f"Docker container {_KAFKA_IMAGE}"

    def obstacle(self) -> str | None:
        return docker_obstacle()

    def start(self, open_until: ExitStack) -> str:
        from testcontainers.core.container import DockerContainer
        from testcontainers.core.wait_strategies import LogMessageWaitStrategy

        # The same port inside and outside: a client is sent on to the address that the broker says it has.
        port = free_ports(1)[0]
        address = f"{_daemon_host()}:{port}"
        container = DockerContainer(_KAFKA_IMAGE).with_bind_ports(port, port)
        for name, value in (_container_properties(address, port) | dict(broker_properties(1))).items():
            container.with_env(_environment_name(name), value)
        container.waiting_for(LogMessageWaitStrategy("Kafka Server started").with_startup_timeout(_START_SECONDS))
        _run(container, open_until)
        return address


class PostgresInDocker:
    """One server, whose maintenance database the tests use; `durable` is as `PostgresServer` has it."""

    origin = f"Docker container {_POSTGRES_IMAGE}"

    def __init__(self, durable: bool = True) -> None:
        self._settings = {"max_connections": "200", **(DURABLE if durable else NOT_DURABLE)}

    def obstacle(self) -> str | None:
        return docker_obstacle()

    def start(self, open_until: ExitStack) -> str:
        from testcontainers.community.postgres import PostgresContainer

        container = PostgresContainer(_POSTGRES_IMAGE, dbname="postgres", driver=None)
        container.with_command(
            " ".join(["postgres", *(f"-c {name}={value}" for name, value in self._settings.items())])
        )
        _run(container, open_until)
        return urlunsplit(urlsplit(container.get_connection_url())._replace(scheme="postgresql"))


def _daemon_host() -> str:
    """Where the ports of containers are, as testcontainers finds it, which a container that was not started cannot say."""
    from testcontainers.core.docker_client import DockerClient

    client = DockerClient()
    try:
        host = client.host()
    finally:
        client.client.close()
    return LOCALHOST if host == "localhost" else host


def _run(container: "DockerContainer", open_until: ExitStack) -> None:
    from docker.errors import DockerException

    open_until.callback(container.stop)  # one that did not become ready in time as well
    try:
        container.start()
    except (DockerException, TimeoutError, OSError) as error:
        raise Unavailable(f"Docker could not start {container.image}: {error}") from error


def _environment_name(name: str) -> str:
    """The variable by which Kafka's image takes a property of the broker."""
    return f"KAFKA_{name.upper().replace('.', '_')}"


def _container_properties(address: str, port: int) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": f"PLAINTEXT://:{port},CONTROLLER://:9093",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
    }
