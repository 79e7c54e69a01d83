"""Kinds `generic` and `website-builder`: the open contract that a PMS can implement to be reached."""
