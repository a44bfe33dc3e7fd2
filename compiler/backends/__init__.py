"""Backends: the registry of names, those built in, and the tools to make one."""
