"""JSON Schema (2020-12) of our models, without what pydantic adds of its own. Pure."""

from collections.abc import MutableMapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode


def schema_of(
    model: type[BaseModel], parts: MutableMapping[str, Any], *, ref: str, mode: JsonSchemaMode = "validation"
) -> dict[str, Any]:
    """The schema of `model`, as it is read (`validation`) or written (`serialization`); those that it refers to are added to
    `parts`. `ref` is where a reference finds them."""
    schema: dict[str, Any] = tidy(model.model_json_schema(by_alias=True, ref_template=ref + "{model}", mode=mode))
    parts |= schema.pop("$defs", {})
    return schema


def tidy(schema: Any) -> Any:
    """Without the titles that pydantic makes of names, and without defaults of null, which say nothing."""
    if isinstance(schema, list):
        return [tidy(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    noise = {"title"} if isinstance(schema.get("title"), str) else set()
    if schema.get("default", "") is None:
        noise.add("default")
    return {name: tidy(part) for name, part in schema.items() if name not in noise}
