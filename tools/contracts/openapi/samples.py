"""A sample of each operation in curl, Python and JavaScript: made of what the contract says of it, so all show one request.

They read the address and the token from the variables that `forwarder up` writes to demo.env.
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tools.contracts.openapi.parameters import DEMO_ACCOUNT, PARAMETERS
from tools.contracts.openapi.responses import Json

_SENT: Final = ("workspaceId", "integrationAccountId", "Idempotency-Key")
"""The headers that a sample sends where its operation takes them."""
_KEYS: Final = {"submitReservation": '"order-43"'}
"""Where two samples are two reservations, they have two keys."""


@dataclass(frozen=True, slots=True)
class _Request:
    """What a sample sends. The values of `headers` that begin with `$` are variables of the environment."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


def with_samples(document: Json) -> Json:
    """`document`, each of whose operations that ask for a key has its samples."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if operation.get("security") != []:
                request = _request(method, path, operation)
                operation["x-codeSamples"] = [
                    {"lang": "Shell", "label": "curl", "source": _curl(request)},
                    {"lang": "Python", "label": "Python", "source": _python(request)},
                    {"lang": "JavaScript", "label": "JavaScript", "source": _javascript(request)},
                ]
    return document


def _request(method: str, path: str, operation: Json) -> _Request:
    parameters = [PARAMETERS[one["$ref"].rpartition("/")[2]] for one in operation.get("parameters", ())]
    headers = {"Authorization": "$FORWARDER_TOKEN"}
    for one in parameters:
        if one["in"] == "path":
            path = path.replace(f"{{{one['name']}}}", str(one["example"]))
    taken = {one["name"]: one["example"] for one in parameters if one["in"] == "header"}
    ours = {"workspaceId": "$FORWARDER_WORKSPACE", "integrationAccountId": DEMO_ACCOUNT}
    if operation["operationId"] in _KEYS:
        ours["Idempotency-Key"] = _KEYS[operation["operationId"]]
    headers |= {name: ours.get(name, taken[name]) for name in _SENT if name in taken}
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return _Request(method, path, headers, None)
    (example,) = content["examples"].values()
    return _Request(method, path, headers | {"Content-Type": "application/json"}, example["value"])


def _curl(request: _Request) -> str:
    method = "" if request.method == "get" or request.body is not None else f" -X {request.method.upper()}"
    if request.body is not None and request.method != "post":
        method = f" -X {request.method.upper()}"
    lines = [f'curl -s{method} "$FORWARDER_URL{request.path}"']
    for name, value in request.headers.items():
        text = f"{name}: {'Bearer ' if name == 'Authorization' else ''}{value}"
        lines.append(f"  -H {_quoted(text)}")
    if request.body is not None:
        lines.append(f"  -d {shlex.quote(json.dumps(request.body, indent=2, ensure_ascii=False))}")
    return " \\\n".join(lines)


def _quoted(text: str) -> str:
    """As a word of the shell, in which variables stay variables."""
    return f'"{text}"' if "$" in text else shlex.quote(text)


def _python(request: _Request) -> str:
    sent = "".join(f"        {json.dumps(name)}: {_python_value(name, value)},\n" for name, value in _shown(request))
    call = f'    os.environ["FORWARDER_URL"] + {json.dumps(request.path)},\n    headers={{\n{sent}    }},\n'
    if request.body is not None:
        call += f"    json={_python_literal(request.body)},\n"
    return (
        f"import os\n\nimport httpx\n\nresponse = httpx.{request.method}(\n{call}    timeout=30,\n)\n"
        "print(response.status_code, response.json())"
    )


def _python_value(name: str, value: str) -> str:
    if not value.startswith("$"):
        return repr(value)
    variable = f'os.environ["{value[1:]}"]'
    return f'"Bearer " + {variable}' if name == "Authorization" else variable


def _python_literal(value: Any) -> str:
    """JSON and Python write all but three words alike."""
    words = {"true": "True", "false": "False", "null": "None"}
    lines = json.dumps(value, indent=4, ensure_ascii=False).split("\n")
    for index, line in enumerate(lines):
        start, _, last = line.rpartition(" ")
        word = last.rstrip(",")
        if word in words:
            lines[index] = f"{start} {words[word]}{last[len(word) :]}"
    return "\n    ".join(lines)


def _javascript(request: _Request) -> str:
    sent = "".join(
        f"    {json.dumps(name)}: {_javascript_value(name, value)},\n" for name, value in request.headers.items()
    )
    options = f"  method: {json.dumps(request.method.upper())},\n  headers: {{\n{sent}  }},\n"
    if request.body is not None:
        body = json.dumps(request.body, indent=2, ensure_ascii=False).replace("\n", "\n  ")
        options += f"  body: JSON.stringify({body}),\n"
    return (
        f"const response = await fetch(process.env.FORWARDER_URL + {json.dumps(request.path)}, {{\n{options}}});\n"
        "console.log(response.status, await response.json());"
    )


def _javascript_value(name: str, value: str) -> str:
    if not value.startswith("$"):
        return json.dumps(value)
    variable = f"process.env.{value[1:]}"
    return f'"Bearer " + {variable}' if name == "Authorization" else variable


def _shown(request: _Request) -> Iterator[tuple[str, str]]:
    """The headers that httpx does not add by itself."""
    return ((name, value) for name, value in request.headers.items() if name != "Content-Type")
