"""SEAM: property management systems. The worker imports `port`, it and the ingress `traits`; `assembly` opens the `directory` of adapters behind it."""
