"""Whose reservations, keys, PMSs and webhooks: the nouns that operators set up. Touches tenancy by `assembly`."""
