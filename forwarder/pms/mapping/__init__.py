"""Kind `generic` by a declarative mapping: what speaks by one. What a mapping may say is in `format`, a kind by it in `kind`."""
