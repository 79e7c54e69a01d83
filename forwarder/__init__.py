"""The reservation forwarder: from booking engines into property management systems, never lost, never booked twice."""

__version__ = "0.1.0"
"""As in pyproject.toml; client and chart have the same (`tools/release.py` compares them)."""
