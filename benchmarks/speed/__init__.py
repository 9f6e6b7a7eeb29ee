"""Speed of encoding: see README.md in this folder."""
