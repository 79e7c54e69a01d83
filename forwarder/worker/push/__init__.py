"""One row pushed to its PMS: rules, look-up, create, cancel, and what each attempt tells."""
