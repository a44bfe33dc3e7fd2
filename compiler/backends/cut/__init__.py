"""A captured graph is cut into parts, each compiled by itself: why, where, and how they are run."""
