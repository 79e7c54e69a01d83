"""Read-only views: search, timelines, backlog, lag, rates, the messages of a topic."""
