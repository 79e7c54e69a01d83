"""The published contracts, generated from the code that keeps them, and compared with the last release.

`openapi` is what booking engines call, `messages` what downstream services consume, `pages` what the service shows to people.
Run it with `python -m tools.contracts`.
"""
