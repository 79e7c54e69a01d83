"""The generated files: the path of each in the repository, and its text. Pure."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import yaml
from pydantic_core import to_json

from forwarder.reservation.problems import CATALOGUE
from tools.contracts.asyncapi import asyncapi, event_schemas
from tools.contracts.messages import all_messages
from tools.contracts.openapi import openapi, shown_examples
from tools.contracts.pages.docs_page import docs_page, docs_script
from tools.contracts.pages.guides import guide_pages, guides_page
from tools.contracts.pages.problem_pages import problem_page, problem_types, problems_markdown, problems_page
from tools.contracts.pms_contract import open_pms_contract

_YAML_HEAD: Final = "# Made of schemas/asyncapi.yaml by `python -m tools.contracts write`.\n"
_REQUESTS: Final = {
    "submitBookingEngineReservation": "booking-engine",
    "submitReservation": "general",
    "submitReservations": "bulk",
    "cancelReservation": "cancellation",
}
"""The names that requests go by, where that is not the operation's."""


SCHEMAS: Final = "schemas"
PUBLISHED: Final = "forwarder/http/published"
"""The folders of generated files. `schemas` also has the contracts that people write, and those of the last release."""

WRITTEN: Final = tuple(f"{SCHEMAS}/{name}" for name in ("openapi.yaml", "asyncapi.yaml", "pms-openapi.yaml"))
"""The contracts that people write."""


@cache
def generated_files() -> Mapping[str, str]:
    """All of them: the contracts, the pages that the service shows, and the docs' page of problems."""
    document = openapi()
    contracts = _contracts(document)
    return {
        **{f"{SCHEMAS}/{name}": text for name, text in contracts.items()},
        **{f"{PUBLISHED}/{name}": text for name, text in _shown(document, contracts).items()},
        "docs/reference/problems.md": problems_markdown(),
    }


def contract_files() -> Mapping[str, str]:
    """The contracts: path below schemas/ → text."""
    below = f"{SCHEMAS}/"
    return {name.removeprefix(below): text for name, text in generated_files().items() if name.startswith(below)}


def _contracts(document: Mapping[str, Any]) -> Mapping[str, str]:
    return {
        "openapi.json": _json(document),
        "pms-openapi.json": _json(open_pms_contract()),
        **{f"events/{kind}.schema.json": _json(schema) for kind, schema in event_schemas().items()},
        **{f"examples/{name}.json": _json(example) for name, example in _examples(document).items()},
    }


def _shown(document: Mapping[str, Any], contracts: Mapping[str, str]) -> Mapping[str, str]:
    """What the service shows, as `forwarder.http.contract` reads it."""
    return {
        "openapi.json": to_json(document).decode(),
        "asyncapi.yaml": _YAML_HEAD + _yaml(asyncapi()),
        "pms-openapi.json": contracts["pms-openapi.json"],
        "docs.html": docs_page(document),
        "docs.js": docs_script(document),
        "guides.html": guides_page(),
        **{f"guides/{name}.html": text for name, text in guide_pages().items()},
        "problems.html": problems_page(),
        "problems.json": _json(problem_types()),
        **{f"problems/{one.code}.html": problem_page(one) for one in CATALOGUE.values()},
    }


def _examples(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of every request, answer, problem, delivery and message, one at least."""
    shown = shown_examples()
    return {
        **{f"requests/{_REQUESTS.get(name, name)}": body for name, body in _bodies(document["paths"])},
        **{f"answers/{name}": body for name, body in shown.items() if name not in CATALOGUE},
        **{f"problems/{code}": body for code, body in shown.items() if code in CATALOGUE},
        **{f"webhooks/{name}": body for name, body in _bodies(document.get("webhooks", {}))},
        **{f"messages/{one.kind}": one.shown() for one in all_messages()},
    }


def _bodies(paths: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The name of each operation that takes a body, and an example of that."""
    for operations in paths.values():
        for operation in operations.values():
            for medium in operation.get("requestBody", {"content": {}})["content"].values():
                for example in medium["examples"].values():
                    yield operation["operationId"], example["value"]


def _json(value: Any) -> str:
    return to_json(value, indent=2).decode() + "\n"


class _Dumper(yaml.SafeDumper):
    """Writes every text of several lines as it reads."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _yaml(value: Any) -> str:
    # By way of JSON: tuples become lists, and nothing is an alias of anything.
    plain = json.loads(to_json(value))
    return yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
