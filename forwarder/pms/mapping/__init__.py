"""Kind `generic` by a declarative mapping: what speaks by one. What a mapping may say is in `format`, what its vendor is in `kind`."""
