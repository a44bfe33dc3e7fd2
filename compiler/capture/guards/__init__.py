"""Guards: the assumptions of compiled code, checked at each call."""
