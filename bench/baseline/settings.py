"""Where the baseline finds its engines and its PMS, from the environment: `BASELINE_KAFKA` and so on."""

import os
from typing import Final

from pydantic import BaseModel, ConfigDict

_PREFIX: Final = "BASELINE_"


class Settings(BaseModel):
    """`database_url` in the form that asyncpg takes; `pms_url` is the base under which `/reservations` is, which is asked
    `in_flight` at a time at the most."""

    model_config = ConfigDict(frozen=True)

    kafka: str
    database_url: str
    pms_url: str
    topic_prefix: str = ""
    in_flight: int = 64

    @classmethod
    def given(cls) -> "Settings":
        """As the environment has them."""
        ours = {name: value for name, value in os.environ.items() if name.startswith(_PREFIX)}
        return cls.model_validate({name.removeprefix(_PREFIX).lower(): value for name, value in ours.items()})

    @property
    def requests(self) -> str:
        return f"{self.topic_prefix}baseline.requests"

    @property
    def results(self) -> str:
        return f"{self.topic_prefix}baseline.results"

    @property
    def group(self) -> str:
        return f"{self.topic_prefix}baseline"
