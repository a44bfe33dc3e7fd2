"""aot: from a captured graph of torch calls to functional graphs of ATen ops."""

from tc.compiler.aot.artifact import OUTPUTS, AotGraph, Contract, Fallback
from tc.compiler.aot.autograd import one_by_one, wrap_training
from tc.compiler.aot.inference import inference
from tc.compiler.aot.standalone import standalone, writing
from tc.compiler.aot.training import Training, training
from tc.compiler.aot.wrap import wrap, wrap_contract

__all__ = [
    "OUTPUTS",
    "AotGraph",
    "Contract",
    "Fallback",
    "Training",
    "inference",
    "one_by_one",
    "standalone",
    "training",
    "wrap",
    "wrap_contract",
    "wrap_training",
    "writing",
]
