"""SEAM: posting to customers' endpoints. Stages import `port` and `signature`; `assembly` opens the rest."""
