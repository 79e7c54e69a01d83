"""What others build against: the HTTP contract, the messages of the topics, the problems. Generated from the code that keeps them.

`openapi` is what booking engines call, `asyncapi` and `event_schemas` what downstream services consume, `problem_pages` what can go
wrong, `routes` serves them. `compatibility` holds them against the last release, `deprecations` says what is to go. Nothing here
takes part in a reservation's way.
"""
