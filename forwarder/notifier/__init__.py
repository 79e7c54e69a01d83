"""STAGE 4: results topic → customers' endpoints. Queues events for the endpoints that take them; posts, signed, what is due."""
