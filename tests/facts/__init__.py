"""The table of facts: what compiled code may read of the world outside of its frame.

Each row brings a program that reads something and a change of what it read. A row is stale where
compiled code still lives in the world before the change; see `fact_runner`.
"""

from __future__ import annotations

from fact_world import Fact

from facts.callables import callables
from facts.classes import classes
from facts.containers import containers
from facts.identity import identity
from facts.libraries import libraries
from facts.modes import modes
from facts.modules import modules
from facts.process import process
from facts.tensors import tensors
from facts.values import values

FAMILIES = (
    identity, tensors, values, containers, classes, callables, libraries, modules, modes, process,
)  # fmt: skip
FACTS: dict[str, Fact] = {fact.name: fact for family in FAMILIES for fact in family}
assert len(FACTS) == sum(map(len, FAMILIES)), "two facts have one name"

#: facts whose change compiled code does not notice, or that crash; docs/soundness.md says why
KNOWN_STALE: frozenset[str] = frozenset((
    "libraries.torch_tensor_size",  # patches what the compiler itself calls
    "libraries.functools_reduce",
))  # fmt: skip
