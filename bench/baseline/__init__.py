"""The same flow as a competent person writes it in an afternoon, to have something that the forwarder's figures are a ratio to.

FastAPI with a body parameter, one acknowledged send a request; a consumer with as many pushes in flight as ours has, by
`httpx.AsyncClient`, one row a statement, offsets committed after each batch. No authentication, no rules, no retries, no sealing:
all of that is in its favour. What it would lose or double in a crash is not measured here.
"""
