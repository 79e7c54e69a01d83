"""What stands: search, timelines, backlog, lag, rates, the messages of a topic. Changes nothing."""
