"""Who may use the deployment, and where their reservations go: workspaces, keys, accounts, webhooks, kinds of PMS."""
