"""PMSs that a declarative mapping describes: what a mapping may say is in `model`, the adapter that speaks by one in `adapter`."""
