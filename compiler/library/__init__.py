"""Library calls: what loops do not compute is arranged for the routines that do (`arrange`)."""

from tc.compiler.library.arrange import arrange

__all__ = ["arrange"]
