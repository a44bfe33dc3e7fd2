"""AOT stage: converts a captured graph of torch calls into functional graphs of ATen ops.

This package exports the parts that run compiled graphs. Those that make them are in `inference`,
`training` and `standalone`, which a process that loads its graphs from disk never imports.
"""

from tc.compiler.aot.artifact import (
    CALLED,
    OUTPUTS,
    AotGraph,
    Contract,
    Fallback,
    RerunPlan,
    TrainingContract,
)
from tc.compiler.aot.autograd import one_by_one, wrap_training, wrap_training_contract
from tc.compiler.aot.layouts import wants_grad
from tc.compiler.aot.wrap import wrap, wrap_backward, wrap_contract

__all__ = [
    "CALLED",
    "OUTPUTS",
    "AotGraph",
    "Contract",
    "Fallback",
    "RerunPlan",
    "TrainingContract",
    "one_by_one",
    "wants_grad",
    "wrap",
    "wrap_backward",
    "wrap_contract",
    "wrap_training",
    "wrap_training_contract",
]
