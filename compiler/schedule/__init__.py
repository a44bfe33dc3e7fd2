"""Schedule stage: makes loop graphs into plans of kernels, ATen calls and memory."""

from tc.compiler.schedule.gpu import plan as gpu_plan
from tc.compiler.schedule.stage import plan
from tc.compiler.schedule.timeline import timeline

__all__ = ["gpu_plan", "plan", "timeline"]
