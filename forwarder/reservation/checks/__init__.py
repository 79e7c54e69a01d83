"""What a request is checked for before it is accepted: form, plausibility, card, the rules of its kind of PMS. Pure."""
