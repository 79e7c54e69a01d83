"""A crash leaves no memory on disk, and no other process of the user reads it; unless a setting says so."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CRASH = """
import ctypes, os, resource, signal
from forwarder.cli.run.serve import settings_and_logging
soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
settings_and_logging()
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), resource.getrlimit(resource.RLIMIT_CORE)[0] == 0, flush=True)
os.kill(os.getpid(), signal.SIGSEGV)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_a_process_that_crashes_leaves_nothing_of_its_memory(tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FORWARDER_")}
    crashed = subprocess.run(
        [sys.executable, "-c", CRASH],
        cwd=tmp_path,
        env={**clean, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert crashed.stdout == "0 True\n", crashed.stderr
    assert crashed.returncode == -signal.SIGSEGV
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_a_setting_leaves_it_to_the_system(tmp_path: Path) -> None:
    asked = CRASH.replace("os.kill(os.getpid(), signal.SIGSEGV)", "")
    left = subprocess.run(
        [sys.executable, "-c", asked],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "FORWARDER_CORE_DUMPS": "true"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert left.stdout.startswith("1 ")
