"""Parts of random worlds: small programs drawn at random, each with changes of what they read.

A strategy takes a random number generator and gives a `Part`. Facts are parts as well, so that a
new row of the table brings its own change into random worlds.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from fact_world import Fact
from facts import FACTS

Strategy = Callable[[random.Random], "Part"]


@dataclass(frozen=True)
class Part:
    """A program and ways to change its world.

    Attributes:
        name: of the fact or the strategy.
        setup: as `Fact.setup`.
        changes: texts as `Fact.change`.
    """

    name: str
    setup: str
    changes: tuple[str, ...]

    @classmethod
    def of(cls, fact: Fact) -> Part:
        """Return a fact as a part."""
        return cls(fact.name, fact.setup, (fact.change,))


def facts(known_stale: frozenset[str]) -> list[Part]:
    """Return the facts that may meet others in one world, but for some."""
    return [Part.of(f) for f in FACTS.values() if not f.alone and f.name not in known_stale]


# -- strategies ------------------------------------------------------------------------------
#: values that a place may hold
VALUES = (
    "1", "2", "7", "-3", "0", "1.5", "float('nan')", "-0.0", "True", "False", "None", "'a'", "'bc'",
    "(1, 2)", "[1]", "[1, 2]", "{'a': 1}", "{'b': 2}", "t(1)", "t(3)", "t(1, 3)", "t(2).double()",
    "t(2, 3, 2).t()", "t(0, 12)[4:7]", "int", "float", "len", "torch.sin", "torch.float64",
    "lambda v: v * 2", "lambda v: v * 5", "slice(0, 1)", "range(3)", "2 ** 70", "np.float32(2)",
    "np.arange(3)", "Colour.RED", "Colour.BLUE", "Thing(2)", "Thing(3)", "nn.Tanh()", "{1, 2}",
)  # fmt: skip
#: what a program may ask of a value ``v``; each is true or false, or a number
QUESTIONS = (
    "isinstance(v, int)", "v is None", "bool(v) if isinstance(v, (int, list, str, dict)) else 3",
    "len(v) if hasattr(v, '__len__') else 4", "type(v) is float", "callable(v)",
    "hasattr(v, 'shape')", "getattr(v, 'k', 6)",
    "v.shape[-1] if isinstance(v, torch.Tensor) else 5",
    "'a' in v if isinstance(v, (dict, str)) else 8", "v == 2 if isinstance(v, (int, str)) else 9",
    "isinstance(v, (list, tuple))", "v is OTHER", "1 if v is True else 2",
    "v.stride()[0] if isinstance(v, torch.Tensor) else 5", "isinstance(v, nn.Module)",
    "v.value if isinstance(v, Colour) else 11", "v + 1 if isinstance(v, (int, float)) else 12",
    "v.dtype == torch.float64 if hasattr(v, 'dtype') else 13",
)  # fmt: skip
_HEAD = """
class Colour(enum.Enum): RED = 3; BLUE = 4
class Thing:
    def __init__(self, k): self.k = k
OTHER = Thing(9)
class Base: pass
class Box(Base): pass
box, items, rows = Box(), {}, [0]
def make():
    cell = 0
    def put_cell(v):
        nonlocal cell
        cell = v
    def get_cell(): return cell
    return put_cell, get_cell
put_cell, get_cell = make()
def defaulted(v=0): return v
variable = contextvars.ContextVar("variable")
"""
#: how a place is written, read, and emptied (what it is then read as)
PLACES = {
    "global": ("V = {}", "V", ""),
    "attribute": ("box.v = {}", "box.v", ""),
    "attribute_or": ("box.v = {}", "getattr(box, 'v', 14)", "vars(box).pop('v', None)"),
    "class": ("Box.w = {}", "box.w", ""),
    "class_or": ("Box.w = {}", "getattr(box, 'w', 14)", "hasattr(Box, 'w') and delattr(Box, 'w')"),
    "base": ("Base.w = {}", "box.w", ""),
    "item": ("items['v'] = {}", "items['v']", ""),
    "item_or": ("items['v'] = {}", "items.get('v', 14)", "items.pop('v', None)"),
    "row": ("rows[0] = {}", "rows[0]", ""),
    "cell": ("put_cell({})", "get_cell()", ""),
    "default": ("defaulted.__defaults__ = ({},)", "defaulted()", ""),
    "context": ("variable.set({})", "variable.get()", ""),
    "module": ("patch(other, 'v', {})", "other.v", ""),
    "module_or": ("patch(other, 'v', {})", "getattr(other, 'v', 14)",
                  "hasattr(other, 'v') and delattr(other, 'v')"),
    "property": ("Box.p = property(lambda self, v={}: v)", "box.p", ""),
    "argument": ("args = t(1), {}", "a", ""),
}  # fmt: skip


def place(rng: random.Random) -> Part:
    """Draw a program that asks questions of what some places hold."""
    places = rng.sample(sorted(PLACES), rng.randint(1, 3))
    if places.count("argument") == 0:
        places.append("argument")
    lines, changes = [], []
    setup = _HEAD + "other = module(f'worlds_{id(box)}', '')\n"
    for name in places:
        write, read, empty = PLACES[name]
        setup += write.format(rng.choice(VALUES)) + "\n"
        for question in rng.sample(QUESTIONS, rng.randint(1, 3)):
            lines.append(f"    v = {read}\n    seen.append({question})")
        changes += [write.format(rng.choice(VALUES)) for _ in range(rng.randint(1, 3))]
        changes += [empty] * bool(empty)
    rng.shuffle(lines)
    body = "\n".join(lines)
    setup += f"def f(x, a):\n    seen = []\n{body}\n    return x * 2, seen\n"
    return Part(f"place:{'+'.join(places)}", setup, tuple(changes))


_POOLS = {
    "tensors": ("[t(), t(1), t(2)]", ("{0}.add_(1)", "seen.append({0} * {1})"), "{0} + 0"),
    "lists": ("[[], [1], [1, 2]]", ("{0}.append(1)", "seen.append(len({1}))"), "len({0})"),
    "dicts": ("[{}, {'a': 1}, {'b': 2}]", ("{0}['a'] = len({1})", "{0}['c'] = 4"), "len({0})"),
    "sets": ("[set(), {1}, {2}]", ("{0}.add(len({1}))", "{0}.add(8)"), "len({0})"),
    "objects": ("[Thing(1), Thing(2), Thing(3)]", ("{0}.k += 1", "{0}.k = {1}.k * 2"), "{0}.k"),
}


def identity(rng: random.Random) -> Part:
    """Draw a program whose inputs may be one object, are compared and written to."""
    pool, writes, read = _POOLS[rng.choice(sorted(_POOLS))]
    names = ["a", "b", "c", "HELD", "box.held"]
    tests = ["{0} is {1}", "{0} is not {1}", "id({0}) == id({1})", "any({0} is v for v in [{1}])"]
    lines = []
    for _ in range(rng.randint(2, 5)):
        one, two = rng.sample(names, 2)
        if rng.random() < 0.5:
            lines.append(f"seen.append({rng.choice(tests).format(one, two)})")
        else:
            lines.append(rng.choice(writes).format(one, two))
        lines.append(f"seen.append({read.format(rng.choice(names))})")
    body = "\n    ".join(lines)
    setup = f"""{_HEAD}
pool = {pool}
HELD, box.held = pool[0], pool[1]
def f(x, a, b, c):
    seen = []
    {body}
    return x * 2, seen
args = t(1), pool[0], pool[1], pool[2]
"""

    def change() -> str:
        a, b, c = (rng.randrange(3) for _ in range(3))
        return rng.choice((
            f"args = t(1), pool[{a}], pool[{b}], pool[{c}]", f"HELD = pool[{a}]",
            f"box.held = pool[{a}]", f"pool = {pool}\nargs = t(1), *pool",
        ))  # fmt: skip

    return Part("identity", setup, tuple(change() for _ in range(4)))


#: ways to make one tensor of the numbers 0 to 11 and others
TENSORS = (
    "t(0, 3, 4)", "t(0, 4, 3).t()", "t(0, 3, 8)[:, ::2]", "t(0, 24)[5:17].view(3, 4)",
    "t(0, 1, 4).expand(3, 4)", "t(0, 3, 1).expand(3, 4)", "t(0, 3, 4).double()", "t(0, 2, 4)",
    "t(0, 3, 4).requires_grad_()", "t(0, 3, 4).requires_grad_() * 1", "t(0, 0, 4)", "t(0, 1, 4)",
    "nn.Parameter(t(0, 3, 4))", "t(0, 3, 4).long()", "t(0, 4, 4)[1:]", "t(0, 5, 4)[::2]",
    "t(0, 3, 4).to(torch.bfloat16)", "t(0, 3, 4).add_(1)", "t(0, 36).as_strided((3, 4), (2, 9), 3)",
    "(t(0, 3, 4) + 0j).conj().imag", "t(0, 2, 3, 4)[1]", "t(0, 6, 4)[:3]", "t(0, 3, 4) > 5",
)  # fmt: skip
PROPERTIES = (
    "x.shape", "x.stride()", "x.dtype", "x.requires_grad", "x.is_leaf", "x.storage_offset()",
    "x.is_contiguous()", "x.ndim", "x.numel()", "x._is_view()", "x.grad is None",
    "x.grad_fn is None", "x.untyped_storage().nbytes()", "x._base is None", "x.is_neg()",
    "x.output_nr", "x.size(0) > 2", "x.size(0) == x.size(1)", "x.is_floating_point()",
    "isinstance(x, nn.Parameter)", "type(x) is torch.Tensor", "x.element_size()",
)  # fmt: skip
OPERATIONS = (
    "x * 2", "x + x.shape[0]", "x.t()", "x.reshape(-1)", "x[:1]", "x[-1]", "x.sum(0)",
    "x.mean().item()"
    " if x.is_floating_point() and x.numel() else 0", "x.contiguous()", "x.view(x.shape)",
    "x.as_strided((2,), (1,))", "x.flatten()[::2]", "x.clone()", "x.unsqueeze(0)", "x.detach()",
    "x.to(torch.float32)", "torch.cat([x, x])", "x == x[:1]", "x.flip(0)", "x.expand(2, *x.shape)",
)  # fmt: skip


def tensor(rng: random.Random) -> Part:
    """Draw a program over one tensor whose kind of memory changes."""
    lines = [f"seen.append({p})" for p in rng.sample(PROPERTIES, rng.randint(0, 4))]
    lines += [f"seen.append({o})" for o in rng.sample(OPERATIONS, rng.randint(1, 3))]
    rng.shuffle(lines)
    body = "\n    ".join(lines)
    setup = f"def f(x):\n    seen = []\n    {body}\n    return seen\nargs = {rng.choice(TENSORS)},"
    return Part("tensor", setup, tuple(f"args = {rng.choice(TENSORS)}," for _ in range(4)))


_VALUES_OF_CLASS = (
    "3", "4", "lambda self: 5", "lambda self: 6", "property(lambda self: 7)",
    "staticmethod(lambda: 8)", "classmethod(lambda cls: 9)", "Descriptor(10)", "Descriptor(11)",
)  # fmt: skip
READS_OF_CLASS = (
    "box.v", "getattr(box, 'v', 1)", "hasattr(box, 'v')", "getattr(Sub, 'v', 1)",
    "hasattr(Base, 'v')", "type(box).__name__", "isinstance(box, Sub)", "isinstance(box, Other)",
    "'v' in vars(box)", "'v' in Sub.__dict__", "len(type(box).__mro__)", "vars(box).get('v', 2)",
    "issubclass(type(box), Base)", "type(box) is Sub", "box == 3", "bool(box)", "callable(box)",
    "len(box) if hasattr(box, '__len__') else 3",
    "3 in box if hasattr(type(box), '__contains__') else 4",
)  # fmt: skip
CHANGES_OF_CLASS = (
    "{0}.v = {1}", "{0}.v = {1}", "{0}.v = {1}", "if 'v' in vars({0}): del {0}.v", "box.v = 12",
    "vars(box).pop('v', None)", "box.__class__ = {0}", "{0}.__getattr__ = lambda self, name: 13",
    "if '__getattr__' in vars({0}): del {0}.__getattr__", "{0}.__eq__ = lambda self, other: True",
    "{0}.__bool__ = lambda self: False", "{0}.__len__ = lambda self: 2", "{0}.__call__ = {1}",
    "{0}.__contains__ = lambda self, v: True", "box = Sub()", "{0}.__name__ = 'Renamed'",
    "Sub.__bases__ = (Other,)", "Sub.__bases__ = (Base,)", "Abstract.register({0})",
    "Descriptor.__get__ = lambda self, instance, owner: self.k * 2",
)  # fmt: skip


def klass(rng: random.Random) -> Part:
    """Draw a program that reads an object whose classes change."""
    reads = [f"seen.append(plain({r}))" for r in rng.sample(READS_OF_CLASS, rng.randint(1, 5))]
    body = "\n    ".join(reads)

    def change() -> str:
        owner = rng.choice(("Sub", "Base", "Other"))
        return rng.choice(CHANGES_OF_CLASS).format(owner, rng.choice(_VALUES_OF_CLASS))

    setup = f"""
import abc
class Descriptor:
    def __init__(self, k): self.k = k
    def __get__(self, instance, owner): return self.k
class Root: pass
class Base(Root): pass
class Other(Base): pass
class Sub(Base): pass
class Abstract(abc.ABC): pass
box = Sub()
{change()}
def plain(v): return v() if callable(v) and not isinstance(v, type) else v
def f(x):
    seen = []
    {body}
    return x * 2, seen
args = t(1),
"""
    return Part("klass", setup, tuple(change() for _ in range(5)))


CALLEES = ("x * 2", "x * 5", "x + K", "torch.relu(x)", "x * len(SEEN)", "h(x)", "x.sum() * x")
CHANGES_OF_CALLEES = (
    "g = lambda x, k=1: {0}", "g.__code__ = (lambda x, k=1: {0}).__code__", "K = {1}",
    "SEEN.append(1)",
    "h = lambda x: {0}", "h.__code__ = (lambda x: {0}).__code__", "g.__defaults__ = ({1},)",
    "B.m = lambda self, x: {0}", "b.m = lambda x: {0}", "vars(b).pop('m', None)", "b.k = {1}",
    "B.k = {1}", "TABLE['g'] = lambda x: {0}", "p.keywords['k'] = {1}",
    "B.__call__ = lambda self, x: {0}", "b = B()", "L.append(lambda x: {0})",
)  # fmt: skip
CALLS = (
    "g(x)",
    "h(x)",
    "b.m(x)",
    "b(x)",
    "TABLE['g'](x)",
    "p(x)",
    "functools.reduce(lambda v, q: q(v), L, x)",
)


def callee(rng: random.Random) -> Part:
    """Draw a program that calls functions, methods and partials that change."""

    def body() -> str:
        return rng.choice([c for c in CALLEES if c != "h(x)"])

    calls = ", ".join(rng.sample(CALLS, rng.randint(1, 4)))
    setup = f"""
K, SEEN = 2, [1]
def h(x): return {body()}
def g(x, k=1): return {rng.choice(CALLEES)}
class B:
    k = 3
    def m(self, x): return x * self.k
    def __call__(self, x): return self.m({body()})
b = B()
TABLE = {{"g": g}}
p = functools.partial(g, k=2)
L = [h]
def f(x):
    return {calls}
args = t(1),
"""
    changes = tuple(
        rng.choice(CHANGES_OF_CALLEES).format(body(), rng.randint(2, 9)) for _ in range(5)
    )
    return Part("callee", setup, changes)


FORWARDS = (
    "self.a(x)", "self.act(x - 3)", "x * self.scale", "x * (1 if self.training else 2)",
    "self.seq(x)", "x * len(self.parts)", "x * getattr(self, 'extra', 3)", "self.drop(x)",
    "x * self.buf", "x if self.a.bias is None else x * 3", "x * len(list(self.parameters()))",
)  # fmt: skip
CHANGES_OF_MODULES = (
    "m.eval()", "m.train()", "m.a = nn.Linear(3, 3)", "m.a = nn.Tanh()\nm.a.bias = None",
    "m.act = nn.Tanh()", "m.scale = 5", "m.extra = 6", "M.extra = 7", "m.parts.append(nn.ReLU())",
    "m.seq.append(nn.Tanh())", "m.seq[0] = nn.Tanh()", "m.drop.p = 0.0",
    "m.buf = torch.full((3,), 4.)",
    "m.a.register_forward_hook(lambda s, i, o: o * 9)",
    "m.register_forward_hook(lambda s, i, o: o * 7)",
    "m.a.register_forward_pre_hook(lambda s, i: (i[0] * 9,))", "m.a._forward_hooks.clear()",
    "m.requires_grad_(False)", "m.requires_grad_(True)", "m.a.forward = lambda v: v * 4",
    "M.forward = lambda self, x: x * 8", "m.double()", "m.float()", "m.act.__class__ = nn.Tanh",
    "m.seq.register_forward_hook(lambda s, i, o: o + 1)", "m.a.bias = None",
)  # fmt: skip


def module(rng: random.Random) -> Part:
    """Draw a module, compiled or called by a function, whose parts change."""
    forward = ", ".join(rng.sample(FORWARDS, rng.randint(1, 3)))
    compiled = "f = m" if rng.random() < 0.4 else "def f(x): return m(x)"
    setup = f"""
torch.manual_seed(0)
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.act, self.drop = nn.Linear(3, 3), nn.ReLU(), nn.Dropout(0.0)
        self.parts = nn.ModuleList([nn.Tanh()])
        self.seq = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.scale = 2
        self.register_buffer("buf", torch.ones(3))
    def forward(self, x):
        x = x.to(self.seq[0].weight.dtype) if hasattr(self.seq[0], "weight") else x
        return {forward},
m = M()
{compiled}
args = t(1),
"""
    return Part("module", setup, tuple(rng.choice(CHANGES_OF_MODULES) for _ in range(5)))


MODES = (
    "enter(torch.no_grad())", "enter(torch.inference_mode())", "enter(torch.enable_grad())",
    "enter(torch.autocast('cpu', dtype=torch.bfloat16))",
    "enter(torch.autocast('cpu', dtype=torch.float16))",
    "enter(torch.autocast('cpu', enabled=False))", "torch.set_default_dtype(torch.float64)",
    "torch.set_default_dtype(torch.float32)", "enter(Mode())", "enter(Other())",
    "enter(torch.set_grad_enabled(False))", "torch.use_deterministic_algorithms(True)",
    "torch.use_deterministic_algorithms(False)", "enter(torch.autograd.set_detect_anomaly(True))",
    "patch(torch, 'sin', torch.cos)", "patch(F, 'relu', F.gelu)",
    "patch(torch.Tensor, 'exp', torch.Tensor.log)",
)  # fmt: skip
READS_OF_MODES = (
    "x * w", "torch.is_grad_enabled()", "x @ x.t()", "torch.ones(2) + 1.5", "torch.arange(3) / 2",
    "torch.get_default_dtype()", "torch.is_autocast_enabled('cpu')", "torch.sin(x)",
    "F.relu(x - 2)",
    "torch.are_deterministic_algorithms_enabled()", "torch.is_inference_mode_enabled()", "x.exp()",
    "torch.is_anomaly_enabled()", "(x + 1).is_inference()",
)  # fmt: skip


def mode(rng: random.Random) -> Part:
    """Draw a program under modes and settings that change."""
    reads = ", ".join(rng.sample(READS_OF_MODES, rng.randint(1, 5)))
    setup = f"""
defer(lambda: torch.set_default_dtype(torch.float32))
defer(lambda: torch.use_deterministic_algorithms(False))
class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {{}}))
        return out * 9 if func is torch.sin else out
class Other(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {{}}))
w = torch.ones(3, requires_grad=True)
def f(x):
    return [{reads}]
args = t(1),
"""
    return Part("mode", setup, tuple(rng.choice(MODES) for _ in range(4)))


STRATEGIES: tuple[Strategy, ...] = (place, identity, tensor, klass, callee, module, mode)
