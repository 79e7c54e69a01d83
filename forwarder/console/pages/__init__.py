"""The pages: each module reads what its page shows, and does what its forms ask for, through operations and ports."""
