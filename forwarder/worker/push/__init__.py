"""One push, step by step: rules, look-up, create or cancel. Calls the PMS; stores nothing itself."""
