"""The first step of every process and command: settings, logging, and no core dumps, which could hold cards."""

from forwarder.observability.logging import configure_logging
from forwarder.process.memory import forbid_core_dumps
from forwarder.settings import Settings, read_settings


def settings_and_logging(level: str | None = None) -> Settings:
    """The settings from the environment; also configures logging, at `level` rather than at the configured one."""
    settings = read_settings()
    environment = settings.environment
    configure_logging(level or environment.log_level, environment.log_format, environment.log_usual_share)
    if not environment.core_dumps:
        forbid_core_dumps()
    return settings
