"""Which devices a graph's kernels are for."""
