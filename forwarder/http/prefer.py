"""How long a caller is ready to wait: the `Prefer` header of RFC 7240. Pure."""

import re
from dataclasses import dataclass
from urllib.request import parse_http_list

_SECONDS = re.compile(r'([0-9]{1,18})|"([0-9]{1,18})"')


@dataclass(frozen=True, slots=True)
class Wait:
    """How long to wait for the outcome; 0 is to answer at once. `applied` is what is said of it in `Preference-Applied`."""

    seconds: float
    applied: str = ""


def read_wait(prefer: str, default: Wait, longest: int) -> Wait:
    """What the `Prefer` header asks for. Preferences that we do not know, or that make no sense, change nothing."""
    asked: dict[str, str] = {}
    for preference in parse_http_list(prefer):
        name, _, value = preference.partition(";")[0].partition("=")
        asked.setdefault(name.strip().lower(), value.strip())
    seconds = _SECONDS.fullmatch(asked.get("wait", ""))
    respond_async = "respond-async" in asked
    if seconds is None:
        return Wait(0, "respond-async") if respond_async else default
    # Together they ask for the outcome if it comes within the wait, else for a 202: what a wait always means here.
    wait = min(int(seconds[1] or seconds[2]), longest)
    return Wait(wait, f"respond-async, wait={wait}" if respond_async else f"wait={wait}")
