"""SEAM: posting to customers' endpoints. Stages import `port`; `assembly` opens the rest."""
