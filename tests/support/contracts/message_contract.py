"""The published schemas of messages, held against messages of the log: strictly, so that nothing unsaid is published."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from pydantic_core import from_json

from forwarder.topics.port import Message
from tests.support.contracts.http_contract import closed_schema
from tools.contracts.asyncapi import asyncapi, event_schemas


def check_message(message: Message) -> str:
    """The type of `message`, of the requests or the results topic. Raises a `jsonschema` error where it is not as published."""
    headers = {name: value.decode() for name, value in message.headers}
    kind = headers["ce_type"]
    check_value(kind, from_json(message.value))
    _headers(kind).validate(headers)
    return kind


def check_dead_letter(message: Message) -> None:
    """As `check_message`, for a dead letter of a submission."""
    headers = {name: value.decode() for name, value in message.headers}
    check_value(headers["ce_type"], from_json(message.value))
    _headers("deadLetter").validate(headers)


def check_value(kind: str, value: Any) -> None:
    """Raises a `jsonschema` error where `value` is not what a message of that type holds."""
    _value(kind).validate(value)


@cache
def _headers(name: str) -> Draft202012Validator:
    return _strict(asyncapi()["components"]["messages"][name]["headers"])


@cache
def _value(kind: str) -> Draft202012Validator:
    return _strict(event_schemas()[kind])


def _strict(schema: Mapping[str, Any]) -> Draft202012Validator:
    return Draft202012Validator(closed_schema(schema), format_checker=FormatChecker())
