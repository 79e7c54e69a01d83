"""Hooks of MkDocs (see mkdocs.yml): the pages and contracts outside docs/ are part of the site, and links lead to them there.

The Markdown files keep links that work in the repository, such as `../../schemas/openapi.json`.
"""

import os
import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = {
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
_LINK: Final = re.compile(r"(\]\()([^)\s#:]+)(?=[)#])")


def on_config(config: Any) -> Any:
    """The version is that of pyproject.toml, and the repository is `HOME_URL`, as in `make release`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config.copyright = f"Version {project['version']}"
    config.repo_url, config.repo_name = os.environ.get("HOME_URL"), "Sources"
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add what lies outside docs/."""
    for name, uri in PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
    published = ROOT / "forwarder" / "http" / "published"
    for path in sorted([*(ROOT / "schemas").rglob("*.*"), *published.glob("*.yaml")]):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the page's links from where things lie in the repository to where they are on the site."""
    uri = page.file.src_uri
    source = next((name for name, target in PAGES.items() if target == uri), f"docs/{uri}")

    def rewritten(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
        target = PAGES.get(path, path.removeprefix("docs/"))
        return link[1] + posixpath.relpath(target, posixpath.dirname(uri) or ".")

    return _LINK.sub(rewritten, markdown)
