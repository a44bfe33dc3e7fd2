"""Compares calls of compiled graphs with eager while a program runs: `tc.config.sentinel`."""
