"""Kind `generic` by a declarative mapping: the model of one, checked as it is loaded, and what speaks by it."""
