"""The fault campaign: what its cases share. Load, fault, quiet, judgement, report; `tests/fault` has the cases."""
