"""The domain vocabulary that all packages share. Pure: no I/O, and no imports from other packages of ours."""
