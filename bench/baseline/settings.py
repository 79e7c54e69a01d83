"""Where the baseline finds its engines, from the environment: `BASELINE_KAFKA`, `BASELINE_DATABASE_URL`, `BASELINE_PMS_URL`."""

from pydantic_settings import BaseSettings, SettingsConfigDict

REQUESTS = "baseline.requests"
RESULTS = "baseline.results"
GROUP = "baseline"


class Settings(BaseSettings):
    """`database_url` in the form that asyncpg takes; `pms_url` is the base under which `/reservations` is."""

    model_config = SettingsConfigDict(env_prefix="BASELINE_", frozen=True)

    kafka: str
    database_url: str
    pms_url: str
