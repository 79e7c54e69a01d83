"""The log in one SQLite file of this machine: what `assembly` chooses when no brokers are configured."""
