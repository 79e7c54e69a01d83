"""`make audit`: known vulnerabilities in what is locked to run, as pip-audit finds them.

pip-audit leaves out what it cannot look up, and then finds none. Here that is told apart: nothing could be looked up, which is
no failure, as there may be no way to the advisories.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parents[1] / "requirements.lock"
WITHIN_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Audit:
    """What became of it: packages that were looked up, those that could not be, and what was found."""

    looked_up: int
    left_out: Sequence[str]
    found: Sequence[str]

    def told(self) -> str:
        """For who reads the log."""
        if not self.looked_up:
            return "audit skipped: no access to advisories"
        lines = [*self.found, f"audit: {self.looked_up} packages looked up, {len(self.found)} vulnerabilities"]
        if self.left_out:
            lines.append(f"audit: not looked up: {', '.join(self.left_out)}")
        return "\n".join(lines)


def audit_of(report: Mapping[str, Any]) -> Audit:
    """pip-audit's report, understood."""
    packages = report["dependencies"]
    return Audit(
        looked_up=sum("skip_reason" not in each for each in packages),
        left_out=[each["name"] for each in packages if "skip_reason" in each],
        found=[
            f"{each['name']} {each['version']}: {one['id']}, mended in {', '.join(one['fix_versions']) or 'no version'}"
            for each in packages
            for one in each.get("vulns", ())
        ],
    )


def main() -> int:
    """Exit code 1 where something was found."""
    options = ("--disable-pip", "--require-hashes", "--progress-spinner=off", "--format=json", "--timeout=10")
    command = [sys.executable, "-m", "pip_audit", *options, f"--requirement={LOCK}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN_SECONDS)
    except subprocess.TimeoutExpired:
        print(f"audit skipped: no access to advisories within {WITHIN_SECONDS} s")
        return 0
    if not done.stdout.strip():  # it could not connect, and says so
        print(f"audit skipped: no access to advisories: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        return 0
    audit = audit_of(json.loads(done.stdout))
    print(audit.told())
    return 1 if audit.found else 0


if __name__ == "__main__":
    sys.exit(main())
