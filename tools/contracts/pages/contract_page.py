"""The HTTP contract as one page to read, made of the document. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from tools.contracts.pages.page import page, paragraphs, prose

_Json = Mapping[str, Any]
_DEPTH: Final = 12


def contract_page(document: _Json) -> str:
    """The page."""
    info = document["info"]
    head = (
        f"<h1>{escape(info['title'])}</h1>"
        f'<p class="quiet">Contract {escape(info["version"])} · <a href="/openapi.json">openapi.json</a> · '
        f'<a href="/problems">problems</a></p>{paragraphs(info["description"])}'
    )
    reader = _Reader(document)
    sections = "".join(reader.section(tag) for tag in document["tags"])
    return page(info["title"], head + sections + reader.posted() + reader.schemas())


class _Reader:
    """Writes parts of `document`, following its references."""

    def __init__(self, document: _Json) -> None:
        self._document = document

    def section(self, tag: _Json) -> str:
        operations = "".join(
            self._operation(method, path, operation)
            for path, methods in self._document["paths"].items()
            for method, operation in methods.items()
            if tag["name"] in operation["tags"]
        )
        return f"<h2>{escape(tag['name'])}</h2><p>{prose(tag['description'])}</p>{operations}"

    def posted(self) -> str:
        """What is posted to webhooks, an event each."""
        events = "".join(
            self._operation(method, kind, operation)
            for kind, methods in self._document.get("webhooks", {}).items()
            for method, operation in methods.items()
        )
        return f"<h2>Posted to webhooks</h2>{events}" if events else ""

    def schemas(self) -> str:
        """Every schema, to be linked to."""
        parts = self._document["components"]["schemas"]
        written = "".join(self._schema(name, schema) for name, schema in parts.items())
        return f"<h2>Shapes</h2>{written}"

    def _operation(self, method: str, path: str, operation: _Json) -> str:
        about = paragraphs(operation["description"]) if "description" in operation else ""
        body = self._content(operation["requestBody"]) if "requestBody" in operation else ""
        gone = " · <b>deprecated</b>" if operation.get("deprecated") else ""
        return (
            f'<details><summary><span class="method {method}">{method.upper()}</span> <code>{escape(path)}</code> '
            f'{escape(operation["summary"])}{gone}</summary><div id="{operation["operationId"]}">{about}'
            f"{self._parameters(operation.get('parameters', ()))}"
            f"{'<h4>Body</h4>' + body if body else ''}<h4>Answers</h4>{self._responses(operation['responses'])}</div></details>"
        )

    def _parameters(self, parameters: Sequence[_Json]) -> str:
        rows = "".join(
            f"<tr><td><code>{escape(one['name'])}</code><br>"
            f'<span class="quiet">{one["in"]}{", required" if one["required"] else ""}</span></td>'
            f"<td>{prose(one['description'])}<br>{self._type(one['schema'])}, such as "
            f"<code>{escape(str(one['example']))}</code></td></tr>"
            for one in map(self._resolved, parameters)
        )
        return f"<h4>Parameters</h4><table>{rows}</table>" if rows else ""

    def _responses(self, responses: _Json) -> str:
        return "".join(
            f"<details><summary><b>{status}</b> {self._summary(one)}</summary>{self._codes(one)}"
            f"{self._headers(one.get('headers', {}))}{self._content(one)}</details>"
            for status, one in responses.items()
        )

    def _summary(self, response: _Json) -> str:
        problems = response.get("content", {}).get("application/problem+json")
        if problems is None:
            return prose(response["description"])
        return " ".join(f"<code>{escape(code)}</code>" for code in problems["examples"])

    def _codes(self, response: _Json) -> str:
        return paragraphs(response["description"]) if "application/problem+json" in response.get("content", {}) else ""

    def _headers(self, headers: _Json) -> str:
        rows = "".join(
            f"<tr><td><code>{escape(name)}</code></td><td>{prose(self._resolved(one)['description'])}</td></tr>"
            for name, one in headers.items()
        )
        return f"<table>{rows}</table>" if rows else ""

    def _content(self, holder: _Json) -> str:
        return "".join(self._medium(media_type, medium) for media_type, medium in holder.get("content", {}).items())

    def _medium(self, media_type: str, medium: _Json) -> str:
        examples = "".join(
            f"<details><summary>Example: {escape(name)}</summary><pre><code>"
            f"{escape(json.dumps(self._resolved(one)['value'], indent=2, ensure_ascii=False))}</code></pre></details>"
            for name, one in medium.get("examples", {}).items()
        )
        return f"<p><code>{media_type}</code>: {self._type(medium['schema'])}</p>{examples}"

    def _schema(self, name: str, schema: _Json) -> str:
        required = schema.get("required", ())
        rows = "".join(
            f"<tr><td><code>{escape(field)}</code>{'' if field in required else ' <span class=quiet>optional</span>'}</td>"
            f"<td>{self._type(one)}</td><td>{prose(one.get('description', ''))}</td></tr>"
            for field, one in schema.get("properties", {}).items()
        )
        about = f"<p>{prose(schema.get('description', ''))}</p>"
        inside = f"<table>{rows}</table>" if rows else f"<p>{self._type(schema)}</p>"
        # The identifier is inside, so that a browser that goes there opens it.
        return f'<details><summary><b>{escape(name)}</b></summary><div id="{name}">{about}{inside}</div></details>'

    def _type(self, schema: _Json) -> str:
        return " or ".join(dict.fromkeys(self._types(schema)))

    def _types(self, schema: _Json) -> Iterator[str]:
        branches = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf", [])[:1]
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            yield f'<a href="#{name}">{name}</a>'
        elif branches:
            for branch in branches:
                yield from self._types(branch)
        elif "const" in schema:
            yield f"<code>{escape(json.dumps(schema['const']))}</code>"
        elif "enum" in schema:
            yield _listed(schema["enum"])
        elif schema.get("type") == "array":
            yield f"a list of {self._type(schema['items'])}"
        else:
            yield _limited(schema)

    def _resolved(self, part: _Json) -> _Json:
        if "$ref" not in part:
            return part
        found: Any = self._document
        for step in part["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        return self._resolved(found)


def _listed(values: Sequence[Any]) -> str:
    shown = [f"<code>{escape(str(value))}</code>" for value in values]
    if len(values) <= _DEPTH:
        return " ".join(shown)
    first, rest = shown[:_DEPTH], shown[_DEPTH:]
    return f"<details><summary>{' '.join(first)} … ({len(values)})</summary><p>{' '.join(rest)}</p></details>"


def _limited(schema: _Json) -> str:
    """A type with its bounds."""
    kind = schema.get("format") or schema.get("type", "anything")
    low, high = schema.get("minimum"), schema.get("maximum")
    bounds = [f"from {low}"] if low is not None else []
    bounds += [f"to {high}"] if high is not None else []
    if "maxLength" in schema:
        bounds.append(f"up to {schema['maxLength']} characters")
    return escape(" ".join([kind, *bounds]))
