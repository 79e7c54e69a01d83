"""The console's responses: pages from templates, which escape all values, small plots, and headers that restrict browsers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request

from forwarder.http.messages import NO_STORE, Header, Response, problem_response
from forwarder.observability.logging import printable
from forwarder.process.clock import SystemClock, iso
from forwarder.reservation import problems as catalogue
from forwarder.reservation.parsing import moment

_SHAPE: Final = Markup(
    '<svg class="plot" viewBox="0 0 240 48" preserveAspectRatio="none" role="img" aria-label="{label}">'
    '<polygon class="area" points="0,48 {line} 240,48"></polygon><polyline class="line" points="{line}"></polyline></svg>'
)


def sparkline(values: Sequence[float], label: str) -> Markup:
    """`values`, the latest at the right, from 0 up to the largest of them. `label` is read out by screen readers."""
    if len(values) < 2:  # noqa: PLR2004 - a line needs two ends
        return Markup("")
    top, step = max(*values, 1.0), 240 / (len(values) - 1)
    points = (f"{at * step:.1f},{46 - value / top * 42:.1f}" for at, value in enumerate(values))
    return _SHAPE.format(label=label, line=" ".join(points))


HOME: Final = "/console"
NO_SUCH_ACTION: Final = "There is no such action; nothing was changed."
_HTML: Final = b"text/html; charset=utf-8"
_POLICY: Final = (
    b"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; "
    b"base-uri 'none'; frame-ancestors 'none'"
)
_PROTECTED: Final[tuple[Header, ...]] = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not no-referrer: then browsers would send `Origin: null` with forms, which identifies our own forms.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=()"),
)
_STATIC: Final[Mapping[str, bytes]] = {
    "console.css": b"text/css; charset=utf-8",
    "console.js": b"text/javascript; charset=utf-8",
    "icon.svg": b"image/svg+xml",
}
_NONE: Final = "\N{EN DASH}"


@dataclass(frozen=True, slots=True)
class RenderedPage:
    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Go:
    """Redirects to `path` of the console, which then shows `notice`."""

    path: str
    notice: str | None = None


def html(page: RenderedPage, shared: Mapping[str, Any], *headers: Header) -> Response:
    """The page as a response; `shared`: values for every page."""
    text = _templates().get_template(page.template).render({**shared, **page.values})
    return Response(page.status, text.encode(), (NO_STORE, *_PROTECTED, *headers), _HTML)


def redirect(path: str, *headers: Header) -> Response:
    return Response(303, b"", (NO_STORE, *_PROTECTED, (b"location", path.encode("ascii")), *headers), _HTML)


def address(path: str, **parameters: str | int | None) -> str:
    """The address of a page, with the non-empty parameters."""
    query = urlencode({name: value for name, value in parameters.items() if value not in (None, "")})
    where = HOME + quote(path, safe="/:~")
    return f"{where}?{query}" if query else where


async def static(request: Request) -> Response:
    """Serves the console's own style, script and icon: it loads nothing from elsewhere."""
    name = request.path_params["name"]
    if (media_type := _STATIC.get(name)) is None:
        return problem_response(catalogue.NOT_FOUND.problem("Unknown path."))
    # Its address changes with its content.
    kept = (b"cache-control", b"public, max-age=31536000, immutable")
    return Response(200, _asset(name), (kept, *_PROTECTED), media_type)


@cache
def _asset(name: str) -> bytes:
    return files("forwarder.console").joinpath("static", name).read_bytes()


@cache
def _asset_address(name: str) -> str:
    return f"{HOME}/static/{name}?{sha256(_asset(name)).hexdigest()[:12]}"


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("forwarder.console", "templates"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals.update(asset=_asset_address, address=address, sparkline=sparkline)
    templates.tests.update(past=_past)
    pretty = partial(json.dumps, ensure_ascii=False, indent=2)
    templates.filters.update(moment=_moment, count=_count, duration=_duration, pretty=pretty)
    return templates


def _shown(value: Any) -> Any:
    """The value with characters escaped that browsers interpret outside of markup, such as those that turn the text direction."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _moment(value: datetime | str | None) -> str:
    return (value if isinstance(value, str) else iso(value))[:19].replace("T", " ") if value else _NONE


def _past(value: datetime | str) -> bool:
    return (datetime.fromisoformat(value) if isinstance(value, str) else value) <= SystemClock().now()


def _count(value: float | None) -> str:
    return _NONE if value is None else f"{value:,}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return _NONE
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"  # noqa: PLR2004 - two digits are enough


def moment_of(text: str) -> datetime | None:
    """In UTC, unless it says otherwise, and not before 1970; None for anything else."""
    written = moment(text)
    return None if written is None else max(written, datetime.fromtimestamp(0, UTC))
