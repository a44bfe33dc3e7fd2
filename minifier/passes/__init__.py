"""Reductions: a case and an oracle in, a smaller case that fails in the same way out."""
