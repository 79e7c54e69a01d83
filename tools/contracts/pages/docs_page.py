"""The page of the HTTP contract: the frame in which Scalar shows the document, and the script that starts it. Pure."""

import json
from collections.abc import Mapping
from html import escape
from typing import Any, Final

_CONTRAST: Final = (
    ".light-mode{--scalar-color-2:#5a5a5a;--scalar-color-3:#666;--scalar-color-green:#067647;--scalar-color-orange:#a44c04}"
    ".dark-mode{--scalar-color-3:#a0a0a0}"
)
"""Some of its greys and colours are fainter than WCAG's level AA asks for."""
_SPARED: Final = ".generate-sdk-button{display:none!important}"
"""It offers a service of its makers."""
_CONFIGURATION: Final = {
    "defaultHttpClient": {"targetKey": "shell", "clientKey": "curl"},
    "hiddenClients": True,  # the contract brings its own samples
    "operationTitleSource": "summary",
    "documentDownloadType": "none",
    "defaultOpenFirstTag": True,
    # Nothing here asks anything of another host, or leads there with what was typed in.
    "proxyUrl": "",
    "telemetry": False,
    "withDefaultFonts": False,
    "persistAuth": False,
    "hideClientButton": True,
    "showDeveloperTools": "never",
    "agent": {"disabled": True},
    "mcp": {"disabled": True},
    "customCss": _CONTRAST + _SPARED,
}
_DRY_RUN: Final = "200 dryRun"
_REAL_FIRST: Final = (
    "for (const path of Object.values(content.paths)) for (const { responses } of Object.values(path)) "
    f'if (responses?.["200"] && responses["202"] && responses["422"] && responses["201"]) '
    f'{{ responses["{_DRY_RUN}"] = responses["200"]; delete responses["200"]; }}'
)
"""Shows the real responses of a submission before that of a dry run: the page sorts by status otherwise."""


def docs_page(document: Mapping[str, Any]) -> str:
    """The page. Without scripts it leads to what can be read without."""
    title = escape(document["info"]["title"])
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{title}: API</title><style>body{{margin:0}}</style></head><body>"
        f'<noscript><h1>{title}</h1><p>This page needs scripts. Without: <a href="/docs/guides">the guides</a>, '
        '<a href="/openapi.json">openapi.json</a>, <a href="/problems">problems</a>.</p></noscript>'
        '<div id="api"></div><script src="/docs/scalar.js"></script><script src="/docs/docs.js"></script></body></html>\n'
    )


def docs_script(document: Mapping[str, Any]) -> str:
    """What starts it. `/docs#<operationId>` and `/docs#<schema>` are addresses that outlast the program that shows them."""
    places = {
        operation["operationId"]: f"tag/{operation['tags'][0].lower()}/{method.upper()}{path}"
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    places |= {name: f"model/{name}" for name in document["components"]["schemas"]}
    return (
        f"const places = {json.dumps(places)};\n"
        "const place = places[location.hash.slice(1)];\n"
        'if (place) history.replaceState(null, "", "#" + place);\n'
        'fetch("/openapi.json").then((response) => response.json()).then((content) => {\n'
        f"  {_REAL_FIRST}\n"
        f'  Scalar.createApiReference("#api", {{content, ...{json.dumps(_CONFIGURATION)}}});\n'
        "});\n"
    )
