"""The pages of docs/reference that are generated from the code: settings, commands, metrics, log events."""
