"""SEAM: posting to customers' addresses. Stages import `port` and what is pure; `assembly` opens the rest."""
