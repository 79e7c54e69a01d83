"""docs/decisions/index.md: every decision, by number."""

from pathlib import Path
from typing import Final

from tools.reference.source import HEAD

_FOLDER: Final = Path(__file__).parents[2] / "docs" / "decisions"
_ABOUT: Final = """# Decisions

Why it is built as it is. Each page has the context, the decision and its consequence. A new decision takes the next number; one
that no longer holds is kept and says what replaced it.

"""


def decisions_page() -> str:
    """The page."""
    return HEAD + _ABOUT + "".join(f"- [{_title(path)}]({path.name})\n" for path in sorted(_FOLDER.glob("0*.md")))


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
