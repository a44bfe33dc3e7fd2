"""Library calls: what loops do not compute is arranged for the routines that do (`arrange`)."""

from tc.compiler.library.arrange import arrange, arrange_joint
from tc.compiler.library.freeze import freeze

__all__ = ["arrange", "arrange_joint", "freeze"]
