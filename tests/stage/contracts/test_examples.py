"""schemas/examples: one of every request, answer, problem, delivery and message that the contracts have."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forwarder.reservation.problems import CATALOGUE
from tests.support.contracts.http_contract import HttpContract
from tools.contracts.messages import other_messages, request_messages, result_messages

SCHEMAS = Path(__file__).parents[3] / "schemas"
CONTRACT = HttpContract()
DOCUMENT = json.loads((SCHEMAS / "openapi.json").read_text())


def of(folder: str) -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text()) for path in (SCHEMAS / "examples" / folder).glob("*.json")}


def _operations(section: str) -> Iterator[dict[str, Any]]:
    for operations in DOCUMENT[section].values():
        yield from operations.values()


def test_every_operation_that_takes_a_body_has_a_request() -> None:
    taking = [one["requestBody"]["content"]["application/json"] for one in _operations("paths") if "requestBody" in one]
    assert len(of("requests")) == len(taking) >= 4
    for medium in taking:
        (example,) = medium["examples"].values()
        assert example["value"] in of("requests").values()


def test_every_operation_has_an_example_of_each_of_its_answers() -> None:
    answers = of("answers")
    for operation in _operations("paths"):
        for status, response in operation["responses"].items():
            medium = response.get("content", {}).get("application/json")
            if medium and "About" not in operation["tags"]:
                assert medium["examples"].keys() <= answers.keys(), (operation["operationId"], status)
                assert medium["examples"], (operation["operationId"], status)
                for name in medium["examples"]:
                    CONTRACT.validate(medium["schema"], answers[name])


def test_every_problem_has_one() -> None:
    problems = of("problems")
    assert problems.keys() == CATALOGUE.keys()
    for code, problem in problems.items():
        CONTRACT.validate({"$ref": "#/components/schemas/ProblemBody"}, problem)
        assert (problem["code"], problem["status"]) == (code, CATALOGUE[code].status)


def test_every_event_has_a_message_and_every_webhook_a_delivery() -> None:
    assert of("messages").keys() == {one.kind for one in (*request_messages(), *result_messages(), *other_messages())}
    assert of("webhooks").keys() == DOCUMENT["webhooks"].keys()
