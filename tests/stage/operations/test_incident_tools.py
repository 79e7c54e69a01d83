"""The commands that the incidents' page names exist, and the composition gives them what they need."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from forwarder.cli.program import program
from tests.support.cases import for_each

ROOT = Path(__file__).parents[3]
INCIDENTS = ROOT / "docs" / "operations" / "incidents.md"
COMMANDS = sorted(
    {
        command
        for command in re.findall(r"`forwarder ([^`]+)`", INCIDENTS.read_text())
        if not command.startswith("secret")
    }
)
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]


@for_each("command", COMMANDS)
def test_every_command_of_the_page_exists_with_its_options(command: str) -> None:
    words = shlex.split(command)
    found: Any = typer.main.get_command(program(words))
    while hasattr(found, "commands"):
        name = words.pop(0)
        assert name in found.commands, command
        found = found.commands[name]
    options = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= options, command


@pytest.mark.parametrize("service", ["operator", "console"])
def test_operators_can_ask_a_pms_in_the_composition(service: str) -> None:
    given = SERVICES[service]
    assert given["environment"]["FORWARDER_SECRET_KEY_FILE"] == "/run/secrets/secret_key"
    assert {"operator_password", "secret_key", "earlier_secret_keys"} <= set(given["secrets"])
    assert set(given["networks"]) == {"out", "engines"}
    assert given["profiles"] == [service]  # starts with nothing else


def test_no_caller_of_the_console_says_which_address_it_calls_from() -> None:
    assert SERVICES["console"]["environment"]["FORWARDER_TRUSTED_PROXIES"] == ""


def test_the_console_is_published_to_this_machine_only() -> None:
    (port,) = SERVICES["console"]["ports"]
    assert port.startswith("127.0.0.1:")
