"""What is known of the packages that the forwarder is made of: their vulnerabilities, and the page that reviews them."""

import re
from pathlib import Path
from typing import Any

from tools.audit import LOCK, audit_of

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "dependencies.md"


def looked_up(name: str, *advisories: str) -> dict[str, Any]:
    vulns = [{"id": each, "fix_versions": ["2.0"], "aliases": [], "description": ""} for each in advisories]
    return {"name": name, "version": "1.0", "vulns": vulns}


def left_out(name: str) -> dict[str, Any]:
    return {"name": name, "skip_reason": "Dependency not found on PyPI and could not be audited"}


def test_what_is_found_is_named_with_the_version_that_mends_it() -> None:
    audit = audit_of({"dependencies": [looked_up("one"), looked_up("two", "PYSEC-1"), left_out("three")], "fixes": []})

    assert audit.found == ["two 1.0: PYSEC-1, mended in 2.0"]
    assert audit.told().splitlines()[1:] == [
        "audit: 2 packages looked up, 1 vulnerabilities",
        "audit: not looked up: three",
    ]


def test_an_audit_that_could_look_nothing_up_does_not_say_that_all_is_well() -> None:
    assert audit_of({"dependencies": [left_out("one")], "fixes": []}).told().startswith("audit skipped: no access")


def test_every_package_that_is_installed_to_run_is_on_the_page() -> None:
    locked = set(re.findall(r"^([a-z0-9._-]+)==", LOCK.read_text(), re.MULTILINE))
    reviewed = set(re.findall(r"`([a-z0-9._-]+)`", PAGE.read_text()))

    assert locked - reviewed == set()
