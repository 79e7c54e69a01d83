"""What every command that runs something begins with; it opens nothing."""

from forwarder.observability.logging import configure_logging
from forwarder.settings import Settings, read_settings


def settings_and_logging(level: str | None = None) -> Settings:
    """The settings of the environment, with logging set up as they say."""
    settings = read_settings()
    environment = settings.environment
    configure_logging(level or environment.log_level, environment.log_format)
    return settings
