"""Where the baseline finds its engines and its PMS, from the environment: `BASELINE_KAFKA` and so on."""

from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """`database_url` in the form that asyncpg takes; `pms_url` is the base under which `/reservations` is, which is asked
    `in_flight` at a time at the most."""

    model_config = SettingsConfigDict(env_prefix="BASELINE_", frozen=True)

    kafka: str
    database_url: str
    pms_url: str
    topic_prefix: str = ""
    in_flight: int = 64

    @property
    def requests(self) -> str:
        return f"{self.topic_prefix}baseline.requests"

    @property
    def results(self) -> str:
        return f"{self.topic_prefix}baseline.results"

    @property
    def group(self) -> str:
        return f"{self.topic_prefix}baseline"
