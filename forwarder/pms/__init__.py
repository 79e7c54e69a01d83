"""SEAM: property management systems. Stages import `port` and `accounts`; `assembly` opens the `directory` of adapters."""
