"""Checks of a request before it is accepted: form, plausibility, card, the rules of its kind of PMS. Pure."""
