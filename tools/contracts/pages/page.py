"""The frame of the pages that the service shows: whole in themselves, no script, nothing fetched from anywhere. Pure."""

import re
from html import escape
from typing import Final

_CODE: Final = re.compile(r"`([^`]+)`")
_LINK: Final = re.compile(r"\[((?:[^\[\]])+)\]\((/[a-z_/]+)\)")
_STYLE: Final = """\
:root{color-scheme:light dark;--line:#8884;--soft:#8881;--post:#1a7f37;--get:#0969da}
html{background:Canvas;color:CanvasText}
body{font:16px/1.55 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:2rem 1rem 6rem}
h1{line-height:1.2}h2{margin-top:2.5rem;border-bottom:1px solid var(--line);padding-bottom:.2rem}
a{color:var(--get)}code,pre{font:.875em/1.5 ui-monospace,monospace}
code{background:var(--soft);border-radius:.25rem;padding:.1em .3em;overflow-wrap:anywhere}
pre{background:var(--soft);border-radius:.4rem;padding:.8rem;overflow:auto}pre code{background:none;padding:0}
table{border-collapse:collapse;width:100%;font-size:.93em}td,th{text-align:left;vertical-align:top;padding:.35rem .6rem .35rem 0;
border-bottom:1px solid var(--line)}td:first-child{width:13rem}
details{border:1px solid var(--line);border-radius:.4rem;margin:.6rem 0;padding:.2rem .8rem}summary{cursor:pointer;padding:.35rem 0}
details>*:last-child{margin-bottom:.6rem}
@media (prefers-color-scheme:dark){:root{--post:#3fb950;--get:#6cb6ff}}
@media (max-width:40rem){td,td:first-child,th{display:block;width:auto;border:0;padding:.1rem 0}
tr{display:block;border-bottom:1px solid var(--line);padding:.4rem 0}}
.method{display:inline-block;min-width:3.2rem;font-weight:700;color:var(--get)}.post{color:var(--post)}.quiet{opacity:.7}
"""


def page(title: str, body: str) -> str:
    """An HTML document. `body` is HTML already."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )


def prose(text: str) -> str:
    """A line of Markdown as HTML: code in backticks and links to paths of ours are all that it knows."""
    linked = _LINK.sub(r'<a href="\2">\1</a>', escape(text))
    return _CODE.sub(r"<code>\1</code>", linked)
