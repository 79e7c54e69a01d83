"""The pages of docs/ that are generated from the code: settings, commands, metrics, log events, the index of decisions."""
