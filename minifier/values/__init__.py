"""The first difference between two runs of a program: recorded, aligned by provenance, compared."""
