"""A sample of each operation in curl, Python and JavaScript: made of what the contract says of it, so all show one request.

They read the address and the token from the variables that `forwarder up` writes to demo.env.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tools.contracts.written import Json

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
                request = _request(method, path, operation, document["components"]["parameters"])
                operation["x-codeSamples"] = [
                    {"lang": "Shell", "label": "curl", "source": _curl(request)},
                    {"lang": "Python", "label": "Python", "source": _python(request)},
                    {"lang": "JavaScript", "label": "JavaScript", "source": _javascript(request)},
                ]
    return document


def _request(method: str, path: str, operation: Json, known: Json) -> _Request:
    parameters = [known[one["$ref"].rpartition("/")[2]] for one in operation["parameters"]]
    for one in parameters:
        if one["in"] == "path":
            path = path.replace(f"{{{one['name']}}}", str(one["example"]))
    taken = {one["name"]: _example(one) for one in parameters if one["in"] == "header"}
    taken["workspaceId"] = "$FORWARDER_WORKSPACE"
    if operation["operationId"] in _KEYS:
        taken["Idempotency-Key"] = _KEYS[operation["operationId"]]
    headers = {"Authorization": "$FORWARDER_TOKEN"} | {name: taken[name] for name in _SENT if name in taken}
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return _Request(method, path, headers, None)
    (example,) = content["examples"].values()
    return _Request(method, path, headers | {"Content-Type": "application/json"}, example["value"])


def _example(parameter: Json) -> Any:
    return parameter["example"] if "example" in parameter else parameter["examples"]["example"]["value"]


def _curl(request: _Request) -> str:
    implied = "get" if request.body is None else "post"
    method = "" if request.method == implied else f" -X {request.method.upper()}"
    lines = [f'curl -s{method} "$FORWARDER_URL{request.path}"']
    for name, value in request.headers.items():
        text = f"{name}: {'Bearer ' if name == 'Authorization' else ''}{value}"
        # In double quotes variables stay variables.
        quoted = f'"{text}"' if "$" in text else shlex.quote(text)
        lines.append(f"  -H {quoted}")
    if request.body is not None:
        lines.append(f"  -d {shlex.quote(json.dumps(request.body, indent=2, ensure_ascii=False))}")
    return " \\\n".join(lines)


def _python(request: _Request) -> str:
    names = [name for name in request.headers if name != "Content-Type"]  # which httpx adds by itself
    sent = [f'        "{name}": {_value(request, name, "os.environ[%s]", repr)},\n' for name in names]
    body = "" if request.body is None else f"    json={_python_literal(request.body)},\n"
    return (
        f"import os\n\nimport httpx\n\nresponse = httpx.{request.method}(\n"
        f'    os.environ["FORWARDER_URL"] + {json.dumps(request.path)},\n    headers={{\n{"".join(sent)}    }},\n'
        f"{body}    timeout=30,\n)\nprint(response.status_code, response.json())"
    )


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
    sent = [f'    "{name}": {_value(request, name, "process.env.%s", json.dumps)},\n' for name in request.headers]
    literal = json.dumps(request.body, indent=2, ensure_ascii=False).replace("\n", "\n  ")
    body = "" if request.body is None else f"  body: JSON.stringify({literal}),\n"
    return (
        f"const response = await fetch(process.env.FORWARDER_URL + {json.dumps(request.path)}, {{\n"
        f'  method: "{request.method.upper()}",\n  headers: {{\n{"".join(sent)}  }},\n{body}}});\n'
        "console.log(response.status, await response.json());"
    )


def _value(request: _Request, name: str, variable: str, literal: Any) -> str:
    """The value of a header as an expression. `variable` is how the language reads the environment."""
    value = request.headers[name]
    if not value.startswith("$"):
        return str(literal(value))
    read = variable % (f'"{value[1:]}"' if "[" in variable else value[1:])
    return f'"Bearer " + {read}' if name == "Authorization" else read
