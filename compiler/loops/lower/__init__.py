"""Lowers ATen ops to loop nests: one file for each family of ops, loaded by file name."""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
