"""A guide whose code is for the reader to keep: its files as the reader would have them, and the distribution that they make."""

import re
import tomllib
from collections import defaultdict
from pathlib import Path

_BLOCK = re.compile(r"^```\w+ (?P<file>[\w.]+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def files_of(guide: Path) -> dict[str, str]:
    """File name → its text. A block names its file beside its language; the blocks of one file follow each other."""
    files: defaultdict[str, list[str]] = defaultdict(list)
    for block in _BLOCK.finditer(guide.read_text(encoding="utf-8")):
        files[block["file"]].append(block["code"])
    return {name: "\n".join(blocks) for name, blocks in files.items()}


def write_distribution(directory: Path, name: str, version: str, kinds: dict[str, str]) -> None:
    """What an installer leaves of a distribution that brings `kinds` (kind → object) beside its modules, in `directory`."""
    info = directory / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{kind} = {value}\n" for kind, value in kinds.items()]
    (info / "entry_points.txt").write_text("[forwarder.pms]\n" + "".join(lines))


def install(files: dict[str, str], directory: Path) -> None:
    """Put the reader's files into `directory`, with what an installer would make of their pyproject.toml."""
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    project = tomllib.loads(files["pyproject.toml"])["project"]
    write_distribution(directory, project["name"], project["version"], project["entry-points"]["forwarder.pms"])
