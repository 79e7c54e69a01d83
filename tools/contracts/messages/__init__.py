"""The topics' messages as AsyncAPI and JSON Schema."""
