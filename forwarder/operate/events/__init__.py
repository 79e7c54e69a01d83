"""Result events: printing them, and posting them to a program that is being written."""
