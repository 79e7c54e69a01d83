"""`python -m tools.contracts write|check|release`: completes the written contracts, finds drift, keeps releases."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from tools.contracts.compatibility import broken_promises, promises
from tools.contracts.files import PUBLISHED, SCHEMAS, WRITTEN, contract_files, generated_files
from tools.contracts.models import Mismatch

ROOT = Path(__file__).resolve().parents[2]
_Root = Annotated[Path, typer.Option(help="The top of the repository.")]
_Against = Annotated[Path | None, typer.Option(help="The contracts of a release; schemas/released by default.")]


class Failed(Exception):
    """The message says what is wrong, and what to do."""


def write(root: _Root = ROOT) -> None:
    """Complete the written contracts (schemas/*.yaml), and write the pages."""
    for name, text in generated_files().items():
        path = root / name
        if not _same(path, text):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"{name} written.")
    for name in _strays(root):
        print(f"{name} is not generated any more: remove it.")


def check(root: _Root = ROOT, against: _Against = None) -> None:
    """Fail if the contracts and the code differ, or if a change breaks callers of the last release."""
    drifted = [name for name, text in generated_files().items() if not _same(root / name, text)]
    if drifted:
        raise Failed(f"{', '.join(drifted)} out of date: run `python -m tools.contracts write`.")
    strays = _strays(root)
    if strays:
        raise Failed(f"{', '.join(strays)}: not generated, but where generated files are kept. Remove it.")
    print("The contracts and the code agree.")
    released = _released(root)
    if against is None and not released.exists():
        print("Nothing is released yet.")
        return
    _require_additions(against or released)
    print("Since the last release things were only added.")


def release(root: _Root = ROOT) -> None:
    """Keep the contracts as those of a release, which every later one must honour. Fails if they break the one before."""
    released = _released(root)
    if released.exists():
        _require_additions(released)
    for name, text in promises(contract_files()).items():
        path = released / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print(f"{released} written: from now on things are only added to it.")


def _released(root: Path) -> Path:
    return root / SCHEMAS / "released"


def _require_additions(folder: Path) -> None:
    released = {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob("*.json")}
    if not released:
        raise Failed(f"{folder} holds no contracts.")
    breaks = broken_promises(released, contract_files())
    if breaks:
        listed = "\n".join(f"- {one}" for one in breaks)
        raise Failed(f"This breaks what was released; see docs/reference/versioning.md:\n{listed}")


def _strays(root: Path) -> list[str]:
    """Files where only generated ones are kept, such as the schema of an event that is gone."""
    ours: Mapping[str, str] = generated_files()
    kept = [path for folder in (SCHEMAS, PUBLISHED) for path in (root / folder).rglob("*") if path.is_file()]
    names = [str(path.relative_to(root)) for path in kept if not path.is_relative_to(_released(root))]
    return sorted(set(names) - set(ours) - set(WRITTEN))


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


def main() -> None:
    """Run the command that was named."""
    program = typer.Typer(help="The published contracts.", no_args_is_help=True)
    for command in (write, check, release):
        program.command()(command)
    try:
        program()
    except (Failed, Mismatch) as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
