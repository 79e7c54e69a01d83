"""SEAM: whose request it is, which PMS it is for, and what is kept sealed. Stages import `port`; `assembly` opens the rest."""
