"""What a campaign ran on, in the words of its page: nothing that names a machine or a day."""

import os
import platform
import re
import subprocess
from collections.abc import Sequence

from tools.servers.kafka.jars import cached_jars
from tools.servers.postgres.process import binaries


def surroundings() -> Sequence[str]:
    """Cores, Python, and the versions of the engines."""
    return [f"{os.cpu_count()} cores", f"Python {platform.python_version()}", _kafka(), _postgres()]


def _kafka() -> str:
    jars = [path.name for path in cached_jars().glob("kafka_*.jar")]
    version = re.search(r"-(\d[\d.]*)\.jar", " ".join(jars))
    return f"Apache Kafka {version.group(1)}" if version else "Apache Kafka"


def _postgres() -> str:
    found = binaries()
    if found is None:
        return "PostgreSQL"
    said = subprocess.run([found / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"\d[\d.]*", said)
    return f"PostgreSQL {version.group()}" if version else "PostgreSQL"
