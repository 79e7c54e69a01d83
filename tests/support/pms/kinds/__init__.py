"""PMSs of each kind as tables of answers. Touch no network."""
