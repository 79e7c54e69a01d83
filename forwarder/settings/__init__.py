"""Settings: environment variables `FORWARDER_…` → frozen values, one object per component. Nothing else reads the environment. An
incomplete configuration (Kafka without PostgreSQL, or the reverse) is an error, never a fallback."""

from forwarder.settings.backend import Distributed, Embedded
from forwarder.settings.environment import BadSettings, Environment
from forwarder.settings.reading import Settings, settings_and_logging, settings_of

__all__ = ["BadSettings", "Distributed", "Embedded", "Environment", "Settings", "settings_and_logging", "settings_of"]
