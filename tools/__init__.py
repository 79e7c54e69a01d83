"""For development only: not part of the package that users install."""
