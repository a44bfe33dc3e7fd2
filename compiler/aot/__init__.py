"""aot: from a captured graph of torch calls to functional graphs of ATen ops."""

from tc.compiler.aot.artifact import OUTPUTS, AotGraph, Contract, Fallback, TrainingContract
from tc.compiler.aot.autograd import one_by_one, wrap_training, wrap_training_contract
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
    "TrainingContract",
    "inference",
    "one_by_one",
    "standalone",
    "training",
    "wrap",
    "wrap_contract",
    "wrap_training",
    "wrap_training_contract",
    "writing",
]
