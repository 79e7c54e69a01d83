"""What the published shapes are made of. Nothing is built from them; tests hold what the service writes to them."""

from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


def _left_out() -> NoReturn:
    raise TypeError("this shape is only described")


def maybe(description: str, **limits: Any) -> Any:
    """A field that is left out where there is nothing to say."""
    return Field(default_factory=_left_out, description=description, **limits)


Moment = Annotated[str, Field(description="UTC with milliseconds and `Z`.", json_schema_extra={"format": "date-time"})]
RequestId = Annotated[
    str, Field(description="The submission's identifier, the same for ever.", pattern="^rsv_[a-z2-7]{32}$")
]


class Part(BaseModel):
    """Names are camelCase outside."""

    model_config = ConfigDict(alias_generator=to_camel, frozen=True)
