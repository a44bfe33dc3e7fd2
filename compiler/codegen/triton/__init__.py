"""Triton for GPU plans: scalar ops, kernels, the program."""
