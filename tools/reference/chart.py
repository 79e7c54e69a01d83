"""deploy/helm/…/files/settings.txt: what may stand under `settings` in the chart's values, a variable a line."""

from typing import Final

from forwarder.settings import Environment

_OF_THE_CHART: Final = {
    *("kafka_bootstrap_servers", "kafka_security_protocol", "kafka_sasl_mechanism", "kafka_sasl_username"),
    *("kafka_sasl_oauth_token_url", "kafka_sasl_oauth_client_id", "kafka_sasl_oauth_scope"),
    *("topic_prefix", "partitions", "allow_plaintext", "trusted_proxies"),
    *("public_url", "lame_duck_seconds", "grace_seconds", "console_plaintext", "log_format"),
    *("host", "port", "data_dir", "revision"),
}
"""They have values of their own, or none that would do in a pod."""


def chart_settings() -> str:
    """Without secrets, which are references, and without what the chart sets itself."""
    known = Environment.model_fields
    free = [
        name
        for name in known
        if name not in _OF_THE_CHART and not name.endswith("_file") and f"{name}_file" not in known
    ]
    return "".join(f"FORWARDER_{name.upper()}\n" for name in free)
