"""Commands that set up workspaces, keys, accounts and webhooks. Uses tenancy through `assembly`."""
