"""The HTTP service: load."""
