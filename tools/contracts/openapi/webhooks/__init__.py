"""What the contract says of webhooks: managing them, their bodies, and what is posted to one."""
