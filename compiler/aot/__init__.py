"""aot: from a captured graph of torch calls to functional graphs of ATen ops.

What runs compiled graphs is here; what makes them is in `inference`, `training` and `standalone`,
which a process that finds its graphs on disk never loads.
"""

from tc.compiler.aot.artifact import (
    OUTPUTS,
    AotGraph,
    Contract,
    Fallback,
    RerunPlan,
    TrainingContract,
)
from tc.compiler.aot.autograd import one_by_one, wrap_training, wrap_training_contract
from tc.compiler.aot.layouts import wants_grad
from tc.compiler.aot.wrap import wrap, wrap_contract

__all__ = [
    "OUTPUTS",
    "AotGraph",
    "Contract",
    "Fallback",
    "RerunPlan",
    "TrainingContract",
    "one_by_one",
    "wants_grad",
    "wrap",
    "wrap_contract",
    "wrap_training",
    "wrap_training_contract",
]
