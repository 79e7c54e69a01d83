"""One push, step by step: rules, look-up, create or cancel. Asks the PMS; stores nothing itself."""
