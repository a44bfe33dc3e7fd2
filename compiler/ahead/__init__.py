"""Before a function runs: its code compiled (`precompile`), its sizes tried (`check_shapes`)."""
