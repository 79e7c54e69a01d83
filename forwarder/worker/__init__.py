"""STAGE 2: from the requests topic, through the rules and the PMS, to the store and the results topic."""
