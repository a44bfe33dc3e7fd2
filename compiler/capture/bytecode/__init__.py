"""Bytecode: read, written for the running Python, and the code of resume functions."""
