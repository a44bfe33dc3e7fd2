"""Guards: what compiled code takes for granted, checked at each call."""
