"""Schedule: loop graphs become plans of kernels, ATen calls and memory (`plan`)."""

from tc.compiler.schedule.stage import plan

__all__ = ["plan"]
