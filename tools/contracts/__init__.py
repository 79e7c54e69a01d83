"""The published contracts: what people write in schemas/*.yaml, completed by what the code says and compared with the last release.

`openapi` is what booking engines call, `asyncapi` what downstream services consume, `pms_contract` what a PMS implements, `pages`
what the service shows to people. Run it with `python -m tools.contracts`.
"""
