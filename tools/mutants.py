"""Mutation testing of the modules that carry the promises: breaks one expression at a time, and runs the tests of that module and,
if they pass, random histories of the whole deployment (`tests/net`).

    python -m tools.mutants [--each 40] [--seed 7] [--histories 40] [--only lease]

Needs cosmic-ray, which `make mutants` installs. Each mutant runs in a process forked from this one, which has the libraries loaded
but nothing of the forwarder; the file on disk is not touched. Prints a table, and the mutants that survived.
"""

import argparse
import importlib.abc
import importlib.util
import os
import random
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from difflib import unified_diff
from functools import partial
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
_PUSH, _OUTCOME, _WORKER = f"{_STAGE}/worker/push", f"{_STAGE}/worker/outcome", f"{_STAGE}/worker"
_INGRESS, _RESENDING = f"{_STAGE}/ingress", f"{_STAGE}/ingress/resending"
MODULES: Final = {
    "worker/outcome/policy.py": [
        [f"{_OUTCOME}/test_{name}.py" for name in ("policy", "policy_retry", "after_fault")],
        [f"{_PUSH}/test_push.py", f"{_PUSH}/test_push_cancelled.py"],
        [f"{_OUTCOME}/test_deadlines.py", f"{_OUTCOME}/test_repair.py"],
        [f"{_WORKER}/test_contained.py", f"{_WORKER}/test_missing_secret.py"],
    ],
    "worker/push/run.py": [
        [f"{_PUSH}/test_push.py", f"{_PUSH}/test_push_cancelled.py"],
        [f"{_PUSH}/test_pipeline.py", f"{_WORKER}/test_contained.py"],
    ],
    "worker/lease.py": [[f"{_WORKER}/test_lease.py"], [f"{_WORKER}/test_custody.py"], [f"{_WORKER}/test_service.py"]],
    "worker/outcome/recorder.py": [
        [f"{_OUTCOME}/test_recorder.py", f"{_OUTCOME}/test_outbox_publisher.py", f"{_OUTCOME}/test_dead_letters.py"],
        [f"{_WORKER}/test_contained.py"],
        [f"{_WORKER}/test_service.py", f"{_WORKER}/test_cancellation.py"],
    ],
    "worker/intake.py": [
        [f"{_WORKER}/test_intake_watch.py", f"{_WORKER}/test_cancellation.py"],
        [f"{_STORE}/test_cancellation_elsewhere.py", f"{_WORKER}/test_duplicates.py"],
        [f"{_WORKER}/test_foreign_requests.py", f"{_WORKER}/test_contained.py", f"{_WORKER}/test_service.py"],
    ],
    "store/submissions/intake.py": [
        [f"{_STORE}/test_store.py"],
        [f"{_STORE}/test_{name}.py" for name in ("possibly_sent", "outcomes", "cancellations", "repairs")],
        [f"{_STORE}/test_{name}.py" for name in ("record_ids", "duplicates", "contained")],
    ],
    "store/submissions/cancellations.py": [
        [f"{_STORE}/test_cancellations.py"],
        [f"{_STORE}/test_retention.py", f"{_STORE}/test_cancellation_elsewhere.py", f"{_STORE}/test_repairs.py"],
    ],
    "ingress/publisher.py": [
        [f"{_INGRESS}/test_acceptance.py", f"{_RESENDING}/test_resending.py"],
        [f"{_INGRESS}/bulk", f"{_INGRESS}/test_duplicates.py", f"{_INGRESS}/test_admission.py"],
        [_RESENDING],
    ],
}
"""The modules below `forwarder`, each with the groups of tests that are run against its mutants, one group after the other until
one fails: first the module's own, then those of others that rely on its behaviour."""

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
_EQUIVALENT: Final = re.compile(
    r"^\+.*(\b(slots|frozen|strict)=False|_LOCK: Final = |if not TYPE_CHECKING|\bdef .*, /, )", re.MULTILINE
)
"""Changes that cannot change what the program does, only what it guards against; they are taken out of the sample: `slots` and
`frozen` of a class, `strict` of a `zip` whose sequences have one length, the number of an advisory lock, imports for types alone,
arguments that may be given by position too."""


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
    """A sample of `each` mutants of the module, or all if there are fewer, without the equivalent ones; always the same for one
    seed."""
    found = {mutant.source: mutant for mutant in _all_of(module)}
    sample = random.Random(f"{seed}{module}").sample(list(found.values()), min(each, len(found)))  # noqa: S311 - not a secret
    return [mutant for mutant in sample if not _EQUIVALENT.search(mutant.diff)]


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


def killed_by(mutant: Mutant, groups: Sequence[Sequence[str]], histories: int) -> str | None:
    """ "suites" if one of the tests fails; else "net" if one of the first random histories breaks a guarantee; else None. A group
    of tests fails too if it takes longer than `CPU_SECONDS`, or waits for `SECONDS`."""
    if any(_fails(mutant, partial(_tests_fail, tests), CPU_SECONDS) for tests in groups):
        return "suites"
    if histories and _fails(mutant, partial(_history_fails, histories), 10 * CPU_SECONDS):
        return "net"
    return None


def _tests_fail(tests: Sequence[str]) -> bool:
    options = "-x -q -n0 -p no:cacheprovider --timeout=120 -W ignore::pytest.PytestAssertRewriteWarning".split()
    return bool(import_module("pytest").main([*options, "-k", "not distributed", *tests]))


def _history_fails(histories: int) -> bool:
    import_module("structlog").configure(processors=[import_module("tests.net.__main__").drop_events])
    live, plan_of = (getattr(import_module("tests.net.histories"), name) for name in ("live", "plan_of"))
    with import_module("tests.net.__main__").migrated_database() as url:
        return any(live(url, plan_of(seed)).wrong for seed in range(1, histories + 1))


def _fails(mutant: Mutant, tried: Callable[[], bool], cpu_seconds: int) -> bool:
    child = os.fork()
    if child == 0:
        os.setsid()
        failed = True
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)
            sys.meta_path.insert(0, _Instead(mutant))
            failed = tried()
        finally:
            os._exit(failed)
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
    parser.add_argument(
        "--histories", type=int, default=40, help="of the net, for a mutant that the suites do not kill"
    )
    parser.add_argument("--only", default="", help="modules whose path contains this text")
    options = parser.parse_args()
    os.nice(max(0, 10 - os.nice(0)))
    for library in _LIBRARIES:
        import_module(library)
    unbroken = Mutant("none.py", "", "")
    rows, survivors = list[str](), list[Mutant]()
    if killed_by(unbroken, [], options.histories):
        print("a random history breaks a guarantee without any mutant", file=sys.stderr)
        return 1
    for module, groups in MODULES.items():
        if options.only not in module:
            continue
        if killed_by(unbroken, groups, 0):
            print(f"the tests of {module} fail without any mutant", file=sys.stderr)
            return 1
        killed, mutants = Counter[str](), mutants_of(module, options.each, options.seed)
        for mutant in mutants:
            by = killed_by(mutant, groups, options.histories)
            killed[by or "survived"] += 1
            if by is None:
                survivors.append(mutant)
                print(f"{mutant.module}\n{mutant.diff}\n", file=sys.stderr, flush=True)
        percent = 100 * (len(mutants) - killed["survived"]) // max(len(mutants), 1)
        rows.append(f"| `forwarder/{module}` | {len(mutants)} | {killed['suites']} | {killed['net']} | {percent} % |")
        print(f"{rows[-1]}", file=sys.stderr, flush=True)
    print("| module | mutants | by the suites | by the net | killed |", "|---|---:|---:|---:|---:|", *rows, sep="\n")
    for mutant in survivors:
        print(f"\n{mutant.module}\n{mutant.diff}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
