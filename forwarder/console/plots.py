"""Small plots, rendered on the server: a line over time as inline SVG, with a text alternative. Pure."""

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

_WIDTH: Final = 240
_HEIGHT: Final = 48
_SHAPE: Final = Markup(
    '<svg class="plot" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" aria-label="{label}">'
    '<polygon class="area" points="0,{height} {line} {width},{height}"></polygon>'
    '<polyline class="line" points="{line}"></polyline></svg>'
)


def sparkline(values: Sequence[float], label: str) -> Markup:
    """`values`, the latest at the right, from 0 up to the largest of them. `label` is read out by screen readers."""
    if len(values) < 2:  # noqa: PLR2004 - a line needs two ends
        return Markup("")
    top = max(*values, 1.0)
    step = _WIDTH / (len(values) - 1)
    points = (
        f"{index * step:.1f},{_HEIGHT - 2 - value / top * (_HEIGHT - 6):.1f}" for index, value in enumerate(values)
    )
    return _SHAPE.format(width=_WIDTH, height=_HEIGHT, label=label, line=" ".join(points))
