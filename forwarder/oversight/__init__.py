"""The audit trail, and how the kernel notices what endangers a guarantee; for the stages and for operators. Sees ports only."""
