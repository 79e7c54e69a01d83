"""SEAM: property management systems. The worker imports `port`; `assembly` opens the `directory` of adapters behind it."""
