"""SEAM: workspaces, API keys, accounts, rate limits, sealed secrets. Stages import all but `sql`, which `assembly` opens."""
