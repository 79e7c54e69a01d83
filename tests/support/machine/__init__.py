"""Workers with all their parts in one virtual time, with a log, a store, PMSs and an operator; and every mishap there is."""
