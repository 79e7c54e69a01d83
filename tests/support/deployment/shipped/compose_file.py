"""`docker-compose.yml` as data, and one service of it as a process of this machine. Knows nothing of what the services do.

What the file says is kept: the command, its whole environment (nothing of the caller's is added but PATH), the health check.
Only addresses change, because here nobody has a network of his own.
"""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import yaml

from forwarder.tenancy.sealing import Secret

REPOSITORY: Final = Path(__file__).parents[4]
COMPOSE_FILE: Final = REPOSITORY / "docker-compose.yml"
DEMO_FILE: Final = REPOSITORY / "docker-compose.demo.yml"
_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*)|:\?[^}]*)?\}")
_SECRET = Secret.from_text("a-secret-of-these-tests-and-of-nothing-else")
IN_FILES: Final = {
    "secret_key": "a-secret-of-these-tests-and-of-nothing-else",
    "earlier_secret_keys": "",
    "sealing_verify_key": _SECRET.verify_key.hex(),
    "notifier_key": _SECRET.webhooks.private_key.hex(),
    **{f"{user}_password": f"of-{user}" for user in ("ingress", "worker", "query", "notifier", "operator")},
}
"""The files that nothing starts without, as `deploy/compose/prepare` makes them; but for the owner's password."""


@dataclass(frozen=True, slots=True)
class Service:
    """One service, its variables filled in with their defaults."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    health: tuple[str, ...]

    @property
    def port(self) -> str:
        """The port that its command says it listens on."""
        return self.command[self.command.index("--port") + 1]

    def rewritten(self, addresses: Mapping[str, str]) -> Self:
        """With every key of `addresses` replaced by its value, wherever it stands."""

        def here(text: str) -> str:
            for address, local in addresses.items():
                # Not within another one, as 0.0.0.0 is in 10.0.0.0.
                text = re.sub(rf"(?<![0-9.]){re.escape(address)}", local, text)
            return text

        return replace(
            self,
            command=tuple(map(here, self.command)),
            environment={name: here(value) for name, value in self.environment.items()},
            health=tuple(map(here, self.health)),
        )

    def with_environment(self, more: Mapping[str, str]) -> Self:
        """With `more` in its environment."""
        return replace(self, environment={**self.environment, **more})

    def as_process(self, command: tuple[str, ...]) -> list[str]:
        """The arguments that run `command` in this service's environment and no other."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return ["env", "-i", f"PATH={path}", *(f"{name}={value}" for name, value in self.environment.items()), *command]


def read_compose(file: Path = COMPOSE_FILE) -> dict[str, Any]:
    """The file, variables filled in with their defaults."""
    filled: dict[str, Any] = _filled(yaml.safe_load(file.read_text()))
    return filled


def _filled(value: Any) -> Any:
    match value:
        case dict():
            return {key: _filled(item) for key, item in value.items()}
        case list():
            return [_filled(item) for item in value]
        case str():
            return _VARIABLE.sub(lambda found: found["default"] or "", value)
        case _:
            return value


def service(name: str, *, demo: bool = False) -> Service:
    """One of our own services; in the demo, with what that adds to it."""
    told = read_compose()["services"].get(name, {})
    environment = told.get("environment", {})
    if demo:
        more = read_compose(DEMO_FILE)["services"].get(name, {})
        told, environment = {**told, **more}, {**environment, **more.get("environment", {})}
    # What has no value is passed on where the caller has it set, and here nobody has.
    environment = {variable: value for variable, value in environment.items() if value is not None}
    _, *health = told.get("healthcheck", {}).get("test", ["CMD"])
    return Service(name, tuple(told["command"]), environment, tuple(health))
