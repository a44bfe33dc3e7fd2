"""Reads bytecode, writes bytecode for the running Python, and builds resume functions."""
