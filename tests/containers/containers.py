"""The composition in real containers: made as its documentation says, in a folder and under a name of its own."""

import asyncio
import json
import os
import secrets
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tools.servers.server_process import free_ports

REPOSITORY: Final = Path(__file__).parents[2]
IMAGE: Final = "FORWARDER_TEST_IMAGE"
"""An image of this tree that is there already; else one is built."""
BUILD: Final = "FORWARDER_TEST_BUILD"
"""More options for `docker build`, such as `--network host`."""
RESTART_ENGINE: Final = "FORWARDER_TEST_RESTART_ENGINE"
"""The command that restarts the engine, such as `systemctl restart docker`. Unset: it is not tried."""
PATIENCE_SECONDS: Final = 600.0
_PUBLIC: Final = ("python:3.13-slim", "apache/kafka:4.1.1", "postgres:17-alpine", "nginx:1.29-alpine")


class CannotRun(Exception):
    """Containers cannot be had here. Says why."""


def require_engine() -> None:
    """Raises `CannotRun` where there is no engine, no Compose, or an image that can be neither found nor pulled."""
    for command, what in (
        (("docker", "version"), "no container engine answers"),
        (("docker", "compose", "version"), "Docker has no Compose"),
        (("openssl", "version"), "openssl is not installed"),
    ):
        if shutil.which(command[0]) is None or _quietly(*command) != 0:
            raise CannotRun(what)
    for image in _PUBLIC:
        if _quietly("docker", "image", "inspect", image) != 0 and _quietly("docker", "pull", "--quiet", image) != 0:
            raise CannotRun(f"the image {image} is not here and cannot be pulled")


def _quietly(*command: str) -> int:
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode


def image_of_this_tree() -> str:
    """Its name."""
    given = os.environ.get(IMAGE)
    if given:
        return given
    name = "reservation-forwarder:test"
    options = os.environ.get(BUILD, "").split()
    subprocess.run(
        ["docker", "build", *options, "--quiet", "--file", "deploy/Dockerfile", "--tag", name, "."],
        cwd=REPOSITORY,
        check=True,
    )
    return name


@dataclass(slots=True)
class Containers:
    """One composition, with simulated PMSs. `image` is what the roles are started from."""

    directory: Path
    image: str
    name: str = field(default_factory=lambda: f"forwarder-test-{secrets.token_hex(4)}")
    port: int = 0
    simulator_port: int = 0

    def prepare(self) -> None:
        """What `deploy/compose/prepare` makes."""
        self.port, self.simulator_port = free_ports(2)
        for file in ("docker-compose.yml", "docker-compose.demo.yml"):
            shutil.copy(REPOSITORY / file, self.directory)
        shutil.copytree(REPOSITORY / "deploy", self.directory / "deploy")
        self._run("deploy/compose/prepare", "--demo")

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    @property
    def pms(self) -> str:
        return f"http://127.0.0.1:{self.simulator_port}"

    def trusted(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.directory / "secrets" / "tls_certificate.pem")

    async def compose(self, *arguments: str) -> str:
        """`docker compose …`: what it prints. Raises `CalledProcessError`."""
        return await asyncio.to_thread(self._run, "docker", "compose", *arguments)

    async def operate(self, *command: str) -> Any:
        """What the operator's command prints as JSON."""
        return json.loads(await self.compose("run", "--rm", "--no-TTY", "operator", *command, "--json"))

    async def state(self, service: str) -> Mapping[str, Any]:
        """What the engine says of the service's container."""
        container = (await self.compose("ps", "--all", "--quiet", service)).strip()
        [told] = json.loads(await asyncio.to_thread(self._run, "docker", "inspect", container))
        return {**told["State"], "RestartCount": told["RestartCount"], "Image": told["Image"]}

    async def kill(self, service: str) -> None:
        """`kill -9` of its first process, from the host: the engine takes `docker kill` for an operator's stop, and leaves it."""
        process = str((await self.state(service))["Pid"])
        helper = ("docker", "run", "--rm", "--pid=host", "--user=0", "--network=none")
        await asyncio.to_thread(self._run, *helper, self.image, "sh", "-c", f"kill -9 {process}")

    async def healthy(self, service: str, *, restarts: int = 0) -> None:
        """Return once it is healthy, started again at least that often."""
        await until(lambda state: _is_healthy(state, restarts), self.state, service)

    async def down(self) -> None:
        await self.compose("down", "--volumes", "--timeout", "40")

    def _run(self, *command: str) -> str:
        environment = {
            **os.environ,
            "COMPOSE_PROJECT_NAME": self.name,
            "FORWARDER_IMAGE": self.image,
            "FORWARDER_PORT": str(self.port),
            "FORWARDER_SIMULATOR_PORT": str(self.simulator_port),
        }
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-4000:]}"
        return done.stdout


def _is_healthy(state: Mapping[str, Any], restarts: int) -> bool:
    return bool(state["RestartCount"] >= restarts and state["Running"] and state["Health"]["Status"] == "healthy")


async def until(right: Callable[[Any], bool], ask: Callable[..., Any], *arguments: Any) -> Any:
    """What is answered once it is right. The engine has nobody to wait for, so it is asked again and again."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = await ask(*arguments)
        if right(answer):
            return answer
        assert time.monotonic() < deadline, (arguments, answer)
        await asyncio.sleep(0.5)
