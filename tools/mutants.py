"""Mutation testing of the modules that carry the promises: breaks one expression at a time and runs the tests of that module.

    python -m tools.mutants [--each 40] [--seed 7] [--only lease]

Needs cosmic-ray, which `make mutants` installs. Each mutant runs in a process forked from this one, which has the libraries loaded
but nothing of the forwarder; the file on disk is not touched. Prints a table, and the mutants that survived.
"""

import argparse
import importlib.abc
import importlib.util
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
CPU_SECONDS: Final = 60
SECONDS: Final = 900
_LIBRARIES: Final = (
    *("pytest", "sqlalchemy.ext.asyncio", "aiosqlite", "alembic", "aiokafka", "asyncpg", "pydantic"),
    *(
        "structlog",
        "prometheus_client",
        "tenacity",
        "httpx",
        "uvicorn",
        "nacl.public",
        "jsonschema",
        "starlette.applications",
    ),
)
_STAGE, _STORE = "tests/stage", "tests/contract/store"
MODULES: Final = {
    "worker/outcome/policy.py": [
        [f"{_STAGE}/worker/outcome/test_policy.py", f"{_STAGE}/worker/outcome/test_policy_retry.py"],
        [f"{_STAGE}/worker/push/test_push.py", f"{_STAGE}/worker/push/test_push_cancelled.py"],
        [f"{_STAGE}/worker/outcome/test_deadlines.py", f"{_STAGE}/worker/outcome/test_repair.py"],
    ],
    "worker/push/run.py": [
        [f"{_STAGE}/worker/push/test_push.py"],
        [f"{_STAGE}/worker/push/test_push_cancelled.py"],
    ],
    "worker/lease.py": [[f"{_STAGE}/worker/test_lease.py"], [f"{_STAGE}/worker/test_custody.py"]],
    "worker/outcome/recorder.py": [
        [f"{_STAGE}/worker/outcome/test_recorder.py"],
        [f"{_STAGE}/worker/test_contained.py"],
    ],
    "worker/outcome/outbox.py": [
        [f"{_STAGE}/worker/outcome/test_outbox_publisher.py"],
        [f"{_STAGE}/worker/test_contained.py"],
    ],
    "worker/intake.py": [
        [f"{_STAGE}/worker/test_cancellation.py"],
        [f"{_STORE}/test_cancellation_elsewhere.py"],
    ],
    "store/submissions/intake.py": [
        [f"{_STORE}/test_store.py"],
        [f"{_STORE}/test_{name}.py" for name in ("possibly_sent", "outcomes", "cancellations", "repairs")],
    ],
    "store/submissions/cancellations.py": [
        [f"{_STORE}/test_cancellations.py"],
        [f"{_STORE}/test_retention.py"],
    ],
    "ingress/publish/publisher.py": [
        [f"{_STAGE}/ingress/test_acceptance.py", f"{_STAGE}/ingress/resending/test_resending.py"],
        [f"{_STAGE}/ingress/bulk/test_bulk.py"],
    ],
    "ingress/publish/idempotency.py": [[f"{_STAGE}/ingress/resending"]],
    "ingress/publish/duplicates.py": [[f"{_STAGE}/ingress/test_duplicates.py"], [f"{_STAGE}/ingress/resending"]],
}
"""The modules below `forwarder`, each with the groups of tests that are run against its mutants, one group after the other until
one fails."""

_OPERATORS: Final = (
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Lt_Gt", "GtE_Lt", "Is_IsNot", "IsNot_Is")),
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul")),
    *(
        "ReplaceUnaryOperator_Delete_Not",
        "ReplaceUnaryOperator_Delete_Invert",
        "ReplaceUnaryOperator_USub_UAdd",
        "AddNot",
    ),
    *("ReplaceAndWithOr", "ReplaceOrWithAnd", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "NumberReplacer"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ExceptionReplacer", "ZeroIterationForLoop"),
)


class Mutant(NamedTuple):
    """One change of a module. `diff`: the changed lines."""

    module: str
    source: str
    diff: str


class _Instead(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads the mutated source in place of the file."""

    def __init__(self, mutant: Mutant) -> None:
        self._path = ROOT / "forwarder" / mutant.module
        self._name = "forwarder." + mutant.module.removesuffix(".py").replace("/", ".")
        self._source = mutant.source

    def find_spec(self, fullname: str, _path: object, _target: object = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, str(self._path), "exec"), module.__dict__)  # noqa: S102 - that is what it is for


def mutants_of(module: str, each: int, seed: int) -> Sequence[Mutant]:
    """A sample of `each` mutants of the module, or all if there are fewer; always the same for one seed."""
    found = {mutant.source: mutant for mutant in _all_of(module)}
    return random.Random(f"{seed}{module}").sample(list(found.values()), min(each, len(found)))  # noqa: S311 - not a secret


def _all_of(module: str) -> Iterator[Mutant]:
    plugins, mutating = import_module("cosmic_ray.plugins"), import_module("cosmic_ray.mutating")
    code = (ROOT / "forwarder" / module).read_text(encoding="utf-8")
    for name in _OPERATORS:
        operator, occurrence = plugins.get_operator(f"core/{name}")(), 0
        while (source := mutating.mutate_code(code, operator, occurrence)) is not None:
            changed = unified_diff(code.splitlines(), source.splitlines(), n=0, lineterm="")
            lines = [line for line in changed if line[:1] in "+-@" and line[:3] not in ("+++", "---")]
            if source != code:
                yield Mutant(module, source, "\n".join(lines))
            occurrence += 1


def is_killed(mutant: Mutant, groups: Sequence[Sequence[str]]) -> bool:
    """Whether one of the tests fails, or a group of them takes longer than `CPU_SECONDS`, or waits for `SECONDS`."""
    return any(_fails(mutant, tests) for tests in groups)


def _fails(mutant: Mutant, tests: Sequence[str]) -> bool:
    child = os.fork()
    if child == 0:
        os.setsid()
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)
            sys.meta_path.insert(0, _Instead(mutant))
            options = (
                "-x",
                "-q",
                "-n0",
                "-p",
                "no:cacheprovider",
                "-k",
                "not distributed",
                "--timeout=120",
                "-W",
                "ignore::pytest.PytestAssertRewriteWarning",
            )
            code = int(import_module("pytest").main([*options, *tests]))
        finally:
            os._exit(code)
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) != 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def main() -> int:
    """Runs the mutants, and prints what became of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=40, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=7, help="draws the sample")
    parser.add_argument("--only", default="", help="modules whose path contains this text")
    options = parser.parse_args()
    os.nice(19)
    for library in _LIBRARIES:
        import_module(library)
    unbroken = Mutant("none.py", "", "")
    rows, survivors = list[str](), list[Mutant]()
    for module, groups in MODULES.items():
        if options.only not in module:
            continue
        if is_killed(unbroken, groups):
            print(f"the tests of {module} fail without any mutant", file=sys.stderr)
            return 1
        mutants = mutants_of(module, options.each, options.seed)
        survived = list[Mutant]()
        for mutant in mutants:
            if not is_killed(mutant, groups):
                survived.append(mutant)
                print(f"{mutant.module}\n{mutant.diff}\n", file=sys.stderr, flush=True)
        survivors += survived
        killed = len(mutants) - len(survived)
        rows.append(f"| `forwarder/{module}` | {len(mutants)} | {killed} | {100 * killed // max(len(mutants), 1)} % |")
        print(f"{rows[-1]}", file=sys.stderr, flush=True)
    print("| module | mutants | killed | |", "|---|---:|---:|---:|", *rows, sep="\n")
    for mutant in survivors:
        print(f"\n{mutant.module}\n{mutant.diff}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
