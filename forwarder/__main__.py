"""`python -m forwarder`, and the `forwarder` command."""

from forwarder.cli.program import run

if __name__ == "__main__":
    run()
