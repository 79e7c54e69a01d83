"""The guides, as pages that the service shows: docs/guides, with links that lead to what the service has.

What a guide links to elsewhere in the repository's docs is not served; there its words stay, and the link goes.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from posixpath import normpath
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tools.contracts.pages.page import page

_GUIDES: Final = Path(__file__).parents[3] / "docs" / "guides"
_SERVED: Final[Mapping[str, str]] = {
    "schemas/openapi.json": "/openapi.json",
    "forwarder/http/published/asyncapi.yaml": "/asyncapi.yaml",
    "schemas/pms-openapi.json": "/pms-openapi.json",
    "docs/reference/http-api.md": "/docs",
    "docs/reference/problems.md": "/problems",
}
"""What of the repository the service has, and where."""
_GUIDE: Final = re.compile(r"docs/guides/([a-z-]+)\.md")
_MARKDOWN: Final = MarkdownIt("commonmark").enable("table")
_CRUMBS: Final = '<p class="quiet"><a href="/docs">API</a> · <a href="/docs/guides">Guides</a></p>'


@cache
def guide_names() -> Sequence[str]:
    """All guides, in the order of the documentation's navigation."""
    navigation = (_GUIDES.parents[1] / "mkdocs.yml").read_text(encoding="utf-8")
    return re.findall(r" guides/([a-z-]+)\.md", navigation)


def guide_pages() -> Mapping[str, str]:
    """The page of each guide, by its name."""
    return {name: _page(name) for name in guide_names()}


def guides_page() -> str:
    """The page that leads to each."""
    items = "".join(f'<li><a href="/docs/guides/{name}">{escape(_title(name))}</a></li>' for name in guide_names())
    more = (
        '<p>The <a href="/docs">API</a> to read and to try, <a href="/problems">every problem</a>, and the contracts: '
        '<a href="/openapi.json">openapi.json</a>, <a href="/asyncapi.yaml">asyncapi.yaml</a>.</p>'
    )
    return page("Guides", f"<h1>Guides</h1><ul>{items}</ul>{more}")


def _text(name: str) -> str:
    return (_GUIDES / f"{name}.md").read_text(encoding="utf-8")


def _title(name: str) -> str:
    return _text(name).partition("\n")[0].removeprefix("# ")


def _page(name: str) -> str:
    tokens = _MARKDOWN.parse(_text(name))
    for index, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", _anchor(tokens[index + 1].content))
        if token.type == "inline" and token.children:
            token.children = _relinked(token.children)
    body = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {})
    return page(_title(name), f"{_CRUMBS}{body}")


def _anchor(heading: str) -> str:
    """As the site that `make docs` builds names it."""
    words = re.sub(r"[^\w\s-]", "", heading.lower()).strip()
    return re.sub(r"[-\s]+", "-", words)


def _relinked(tokens: list[Token]) -> list[Token]:
    """`tokens`, whose links lead to what the service has; a link to anything else is gone, its words are not."""
    kept: list[Token] = []
    gone = False
    for token in tokens:
        if token.type == "link_open":
            target = _target(str(token.attrs["href"]))
            gone = target is None
            if target is not None:
                token.attrSet("href", target)
        if not (gone and token.type in {"link_open", "link_close"}):
            kept.append(token)
        if token.type == "link_close":
            gone = False
    return kept


def _target(link: str) -> str | None:
    if link.startswith(("#", "https://", "http://")):
        return link
    path, _, fragment = link.partition("#")
    lies = normpath(f"docs/guides/{path}")
    guide = _GUIDE.fullmatch(lies)
    served = f"/docs/guides/{guide[1]}" if guide else _SERVED.get(lies)
    return served and served + (f"#{fragment}" if fragment and guide else "")
