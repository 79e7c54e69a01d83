"""SEAM: property management systems. Stages import `port` and `traits`; `assembly` opens the `directory` of adapters behind it."""
