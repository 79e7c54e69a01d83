"""Vendors' own contracts and recorded traffic, where this machine has them: they are no part of the project.

They are looked for in the folder that `FORWARDER_TEST_CONTRACTS` names, else in `../shared/contracts` beside the project.
"""

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

_PROJECT = Path(__file__).resolve().parents[3]


def contracts_path(*parts: str) -> Path:
    """A file or folder of the contracts; skips the test where it is not there."""
    folder = os.environ.get("FORWARDER_TEST_CONTRACTS")
    root = Path(folder) if folder else _PROJECT.parent / "shared" / "contracts"
    path = root.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no {'/'.join(parts)}: set FORWARDER_TEST_CONTRACTS to the folder of the vendors' contracts")
    return path


def contract_document(*parts: str) -> dict[str, Any]:
    """A YAML or JSON document of the contracts; skips the test where it is not there."""
    return _loaded(contracts_path(*parts))


@cache
def _loaded(path: Path) -> dict[str, Any]:
    loader = getattr(
        yaml, "CSafeLoader", yaml.SafeLoader
    )  # a vendor's document is large, and the one in C ten times as fast
    document: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), loader)
    return document
