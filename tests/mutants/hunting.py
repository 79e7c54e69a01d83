"""Applies a mutant to a copy of the package, and looks for a history that shows it."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.mutants.catalogue import Mutant

ROOT: Final = Path(__file__).parents[2]
KNOWN: Final = Path(__file__).with_name("found.json")
"""The seed by which each mutant was found last: it is tried first."""


@dataclass(frozen=True, slots=True)
class Hunt:
    """How it went. `seed` None: the mutant survived so many histories."""

    seed: int | None
    steps: int
    tried: int
    seconds: float
    rule: str


def mutated(mutant: Mutant) -> str:
    """The text of its file, changed. Raises `ValueError` where it does not apply."""
    text = (ROOT / mutant.path).read_text()
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.id}: its text occurs {text.count(mutant.old)} times in {mutant.path}")
    return text.replace(mutant.old, mutant.new)


def copy_with(mutant: Mutant, directory: Path) -> None:
    """`directory` has a package `forwarder` with the mutant, and our tests. What is unchanged is linked: it is compiled already."""
    (directory / "tests").symlink_to(ROOT / "tests")
    (directory / "pms-kit").symlink_to(ROOT / "pms-kit")
    below = Path()
    for part in Path(mutant.path).parts[:-1]:
        below /= part
        (directory / below).mkdir()
        changed = Path(mutant.path).relative_to(below).parts[0]
        for each in (ROOT / below).iterdir():
            if each.name == "__pycache__":
                shutil.copytree(each, directory / below / each.name)
            elif each.name != changed:
                (directory / below / each.name).symlink_to(each)
    (directory / mutant.path).write_text(mutated(mutant))


def hunt(mutant: Mutant, histories: int, after: int = 0) -> Hunt:
    """Lives through so many histories with the mutant, in a process of its own, until one shows it. Those of seeds up to `after`
    were tried before."""
    known = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    command = [sys.executable, "-m", "tests.net", "hunt", mutant.id, "--histories", str(histories)]
    command += ["--after", str(after)]
    if mutant.id in known and not after:
        command += ["--first", str(known[mutant.id])]
    with TemporaryDirectory(prefix="mutant-") as directory:
        copy_with(mutant, Path(directory))
        environment = {**os.environ, "PYTHONPATH": directory}
        done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{mutant.id}: {done.stderr[-2000:]}")
    return Hunt(**json.loads(done.stdout.splitlines()[-1]))


def remember(found: dict[str, int]) -> None:
    """These are tried first from now on."""
    known = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    KNOWN.write_text(json.dumps(dict(sorted((known | found).items())), indent=1) + "\n")
