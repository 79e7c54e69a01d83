"""A process imports what it uses, and nothing of the others; what is named in tables is there."""

import gc
import re
import subprocess
import sys
from collections.abc import Collection
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from forwarder.cli.failures import exit_code, message
from forwarder.cli.program import COMMANDS, GROUPS, program
from forwarder.cli.run.serve import STAGES
from forwarder.operate.output import Failed, WrongUsage
from forwarder.pms.registry import KINDS
from forwarder.process.loading import load
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.topics.port import LogUnavailable
from tests.support.cases import for_each

LISTED = {name: about for name, (_, about) in {**COMMANDS, **GROUPS}.items()}
PMS = ("forwarder.pms.http", "forwarder.pms.kinds", "forwarder.pms.options", "httpx")
"""What talks to PMSs, and what it needs. The port is no more than types."""

NOBODYS = (
    "alembic",
    "forwarder_pms_kit.conformance",
    "forwarder.simulator.app",
    "opentelemetry",
    "tools.contracts.openapi",
)
"""What no stage needs to start."""


def imported(code: str) -> Collection[str]:
    """The modules of a process that ran `code`."""
    told = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules, file=sys.stderr)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stderr.split()


def within(packages: Collection[str], modules: Collection[str]) -> list[str]:
    return [name for name in modules if any(f"{name}.".startswith(f"{package}.") for package in packages)]


def test_the_list_of_commands_imports_none_of_them() -> None:
    modules = imported(
        "from forwarder.cli.program import run\nsys.argv[1:] = ['--help']\ntry: run()\nexcept SystemExit: pass"
    )
    assert "forwarder.cli.program" in modules
    assert (
        within(
            ("forwarder.operate.tenants.workspaces", "forwarder.settings", "sqlalchemy", "pydantic", "aiokafka"),
            modules,
        )
        == []
    )


@pytest.mark.parametrize(
    ("stage", "foreign"),
    [
        (
            "ingress",
            ["forwarder.worker.service", "forwarder.query", "forwarder.notifier.service", *PMS],
        ),
        pytest.param(
            "query",
            ["forwarder.worker.service", "forwarder.ingress", "forwarder.notifier.service", *PMS],
            marks=pytest.mark.slow,
        ),
        (
            "worker",
            ["forwarder.ingress", "forwarder.query", "forwarder.notifier.service", "tools.contracts.openapi"],
        ),
        pytest.param(
            "notifier",
            ["forwarder.worker.service", "forwarder.ingress", "forwarder.query", *PMS],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_stage_imports_nothing_of_the_others(stage: str, foreign: list[str]) -> None:
    modules = imported(
        f"from pkgutil import resolve_name\nimport forwarder.cli.run.serve\nresolve_name({STAGES[stage]!r})"
    )
    assert f"forwarder.assembly.{stage}" in modules
    assert within((*foreign, *NOBODYS), modules) == []


def test_a_worker_imports_the_kinds_that_are_asked_for() -> None:
    modules = imported("from forwarder.pms.registry import registered\nregistered().kinds['cloudbeds'].limits")
    assert "forwarder.pms.kinds.cloudbeds" in modules
    assert within(("forwarder.pms.kinds.beds24", "forwarder.pms.kinds.hostaway"), modules) == []


def test_no_kind_is_imported_to_know_which_there_are() -> None:
    modules = imported(
        "from forwarder.pms.registry import KINDS, registered\n"
        "assert 'generic' in registered().kinds and sorted(KINDS) == sorted(registered().kinds)"
    )
    assert within(("forwarder.pms.kinds.generic", "forwarder.pms.kinds.beds24"), modules) == []


@for_each("name", sorted(LISTED))
def test_a_command_is_listed_by_the_beginning_of_its_own_help(name: str) -> None:
    own = CliRunner().invoke(program([name]), [name, "--help"])
    assert own.exit_code == 0, own.output
    assert "".join(own.output.split("\n\n", 1)[1].split()).startswith("".join(LISTED[name].split()))
    listed = CliRunner().invoke(program(["--help"]), ["--help"])
    assert f"\n  {name}  " in listed.output


@for_each("place", [*STAGES.values(), "forwarder.pms.registry:takes_cancellations"])
def test_what_runs_a_stage_is_there(place: str) -> None:
    assert callable(load(place))


def test_a_kind_that_there_is_not_is_missed() -> None:
    assert "fax" not in KINDS
    assert len(KINDS) == len(set(KINDS))
    with pytest.raises(KeyError):
        KINDS["fax"]


@pytest.mark.parametrize(("place", "raised"), [("forwarder.nowhere:it", ImportError), ("gc:nothing", AttributeError)])
def test_what_cannot_be_imported_leaves_the_collector_as_it_was(place: str, raised: type[Exception]) -> None:
    assert gc.isenabled()
    with pytest.raises(raised):
        load(place)
    assert gc.isenabled()


def test_a_bug_has_no_exit_code_of_its_own() -> None:
    codes: list[Any] = [exit_code(error) for error in (WrongUsage("so"), Failed("so"), RuntimeError("so"))]
    assert codes == [2, 1, None]


@for_each("error", [StoreUnavailable("so"), TenancyUnavailable("Error: so"), LogUnavailable("so")])
def test_an_outage_is_named_with_what_to_do(error: Exception) -> None:
    assert re.fullmatch(
        "the (database|log) is unavailable: so. Repeat the command when it is back; .*doctor.*", message(error)
    )


def test_only_what_is_called_is_more_than_listed() -> None:
    assert isinstance(program(["key", "list"]).registered_groups[0].typer_instance, typer.Typer)
    assert not program(["--help"]).registered_groups


def test_without_the_kit_a_check_says_how_to_install_it() -> None:
    code = (
        "import sys\nfrom forwarder.process import loading\nloading.find_spec = lambda _name: None\n"
        "sys.argv[1:] = ['adapters', 'check', 'hostaway', '--check', 'cancels']\n"
        "from forwarder.cli.program import run\nrun()"
    )
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert asked.returncode == 1
    assert "pip install forwarder-pms-kit==" in asked.stderr
