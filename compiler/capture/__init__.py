"""Capture: bytecode of a frame becomes an FX graph, guards and residual code."""
