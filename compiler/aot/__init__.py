"""aot: from a captured graph of torch calls to functional graphs of ATen ops."""

from tc.compiler.aot.artifact import AotGraph, Fallback
from tc.compiler.aot.inference import inference
from tc.compiler.aot.wrap import wrap

__all__ = ["AotGraph", "Fallback", "inference", "wrap"]
