"""A whole forwarder as a user runs it: our commands as processes, and what is shipped beside them."""
