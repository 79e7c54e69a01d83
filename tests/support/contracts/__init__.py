"""The published contracts held against what the service really says, by tools that others wrote."""
