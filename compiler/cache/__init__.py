"""Compiled graphs on disk: their keys, and how they are kept and found."""
