"""The tools of a comparison that are written in Go, where their sources are at hand: a PMS, and goref, the flow
written by hand. Lean enough that on a small machine they are not what is measured; the project does not depend on them.
"""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.processes import CommandFailed
from tools.servers.ladder import Unavailable

SOURCES = Path(__file__).parent.parent.parent / "shared" / "tools"
"""Where they are unless an option says otherwise: beside the project."""

_TOOLS = ("pms", "goref")


@dataclass(frozen=True, slots=True)
class GoTools:
    """The programs, built. `tables`: what creates goref's tables. `bento`: its binary, built elsewhere, if it takes part; its
    configurations are in `sources`."""

    pms: Path
    goref: Path
    tables: str
    sources: Path
    bento: Path | None = None

    @classmethod
    def build(cls, sources: Path, into: Path, bento: Path | None = None) -> "GoTools":
        """Raises `Unavailable` where there is no Go, or no such tool or file; `CommandFailed` where one does not compile."""
        if bento is not None and not bento.is_file():
            raise Unavailable(f"{bento} is no file: --bento takes Bento's binary")
        go = shutil.which("go")
        if go is None:
            raise Unavailable("Go is not installed")
        if missing := [name for name in _TOOLS if not (sources / name).is_dir()]:
            raise Unavailable(f"{sources} has no {', '.join(missing)}")
        into.mkdir(parents=True, exist_ok=True)
        for name in _TOOLS:
            # One file of the standard library's alone has no module to build.
            what = "." if (sources / name / "go.mod").exists() else "main.go"
            built = subprocess.run(
                [go, "build", "-o", str(into / name), what],
                cwd=sources / name,
                capture_output=True,
                text=True,
                check=False,
            )
            if built.returncode:
                raise CommandFailed(f"go build of {name}: exit {built.returncode}\n{built.stderr}")
        tables = (sources / "goref" / "tables.sql").read_text()
        return cls(into / "pms", into / "goref", tables, sources, bento)

    def pms_command(self, port: str, delay_ms: int, errors: float) -> Sequence[str]:
        """What starts the PMS."""
        return [str(self.pms), "--addr", f"127.0.0.1:{port}", "--delay", f"{delay_ms}ms", "--fail-rate", str(errors)]
