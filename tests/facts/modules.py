"""Facts about `torch.nn.Module`: parts, parameters, hooks, flags."""

from __future__ import annotations

from fact_world import Family

modules = Family("modules")

_M = """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a = nn.Linear(3, 3)
        self.b = nn.Linear(3, 3)
        self.drop = nn.Dropout(0.9)
        self.act = nn.ReLU()
        self.parts = nn.ModuleList([nn.Linear(3, 3), nn.Tanh()])
        self.named = nn.ModuleDict({"one": nn.Linear(3, 3)})
        self.seq = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("buf", torch.ones(3))
        self.plist = nn.ParameterList([nn.Parameter(torch.ones(3))])
        self.scale = 2
        self.opt = None
    def forward(self, x):
        return FORWARD
m = M()
"""
_A = _M.replace("FORWARD", "self.a(x)")


def _change(name: str, forward: str, change: str, setup: str = "") -> None:
    """Add a fact about a module ``m``: once called by a function, once compiled itself."""
    start = _M.replace("FORWARD", forward) + setup
    modules(name, f"{start}\ndef f(x):\n    return m(x)\nargs = t(1),", change)
    modules(f"{name}_compiled", f"{start}\nf = m\nargs = t(1),", change)


_change("submodule_replaced", "self.a(x)", "m.a = nn.Tanh()")
_change("submodule_same_kind", "self.a(x)", "m.a = m.b")
_change(
    "submodule_absent_then_added", "x * (1 if hasattr(self, 'zzz') else 2)", "m.zzz = nn.Tanh()"
)
_change("submodule_none_then_set", "x if self.opt is None else self.opt(x)", "m.opt = nn.Tanh()")
_change("submodule_deleted", "x * (1 if hasattr(self, 'b') else 2)", "del m.b")
_change("training", "x * (1 if self.training else 2)", "m.eval()")
_change("training_of_part", "self.drop(x)", "m.drop.eval()", "m.train()")
_change("training_set_on_part", "x * (1 if self.a.training else 2)", "m.a.training = False")
_change("dropout_rate", "self.drop(x)", "m.drop.p = 0.0")
_change("attribute", "x * self.scale", "m.scale = 5")
_change("attribute_absent", "x * getattr(self, 'zzz', 2)", "m.zzz = 5")
_change("class_attribute_absent", "x * getattr(self, 'zzz', 2)", "M.zzz = 5")
_change(
    "parameter_replaced",
    "self.a.weight * x",
    "m.a.weight = nn.Parameter(torch.ones(3, 3)[:2])",
    "m.a.weight = nn.Parameter(torch.ones(2, 3) * 2)",
)
_change("parameter_none", "x if self.a.bias is None else x * self.a.bias", "m.a.bias = None")
_change("parameter_none_linear", "self.a(x)", "m.a.bias = None")
_change("parameter_data", "self.a(x)", "m.a.weight.data = torch.ones(3, 3)")
_change("parameter_shape", "self.a(x)", "m.a = nn.Linear(3, 5)")
_change(
    "parameter_registered",
    "x * len(list(self.parameters()))",
    "m.register_parameter('zzz', nn.Parameter(torch.ones(1)))",
)
_change(
    "parameter_names",
    "x * len(dict(self.named_parameters()))",
    "m.a.register_parameter('zzz', nn.Parameter(torch.ones(1)))",
)
_change("buffer_none", "x if self.buf is None else x * 3", "m.buf = None")
_change("buffer_replaced", "x * self.buf", "m.buf = torch.full((3,), 4.)")
_change("buffer_dtype", "x * self.buf", "m.buf = torch.full((3,), 4., dtype=torch.float64)")
_change(
    "buffer_registered", "x * len(list(self.buffers()))", "m.register_buffer('zzz', torch.ones(1))"
)
_change("requires_grad", "self.a(x)", "m.a.requires_grad_(False)")
_change(
    "requires_grad_read",
    "x * (1 if self.a.weight.requires_grad else 2)",
    "m.a.weight.requires_grad = False",
)
_change("to_double", "self.a(x.to(self.a.weight.dtype))", "m.double()")
_change(
    "list_grows", "functools.reduce(lambda v, p: p(v), self.parts, x)", "m.parts.append(nn.ReLU())"
)
_change("list_length", "x * len(self.parts)", "m.parts.append(nn.ReLU())")
_change("list_item_replaced", "self.parts[1](x)", "m.parts[1] = nn.ReLU()")
_change("dict_grows", "x * len(self.named)", "m.named['two'] = nn.Tanh()")
_change("dict_contains", "x * (1 if 'two' in self.named else 2)", "m.named['two'] = nn.Tanh()")
_change("dict_item_replaced", "self.named['one'](x)", "m.named['one'] = nn.Tanh()")
_change("sequential_grows", "self.seq(x)", "m.seq.append(nn.ReLU())")
_change("sequential_replaced", "self.seq(x)", "m.seq[1] = nn.ReLU()")
_change(
    "parameter_list_grows", "x * sum(self.plist)", "m.plist.append(nn.Parameter(torch.ones(3)))"
)
_change("children_counted", "x * len(list(self.children()))", "m.zzz = nn.Tanh()")
_change(
    "modules_by_type",
    "x * sum(isinstance(p, nn.Tanh) for p in self.modules())",
    "m.zzz = nn.Tanh()",
)
_change("get_submodule", "self.get_submodule('parts.1')(x)", "m.parts[1] = nn.ReLU()")
_change("forward_hook", "self.a(x)", "m.a.register_forward_hook(lambda s, i, o: o * 9)")
_change("forward_hook_on_itself", "self.a(x)", "m.register_forward_hook(lambda s, i, o: o * 9)")
_change("forward_pre_hook", "self.a(x)", "m.a.register_forward_pre_hook(lambda s, i: (i[0] * 9,))")
_change(
    "forward_pre_hook_on_itself",
    "self.a(x)",
    "m.register_forward_pre_hook(lambda s, i: (i[0] * 9,))",
)
_change(
    "forward_hook_removed",
    "self.a(x)",
    "h.remove()",
    "h = m.a.register_forward_hook(lambda s, i, o: o * 9)",
)
_change(
    "forward_hook_replaced",
    "self.a(x)",
    "h.remove(); m.a.register_forward_hook(lambda s, i, o: o * 5)",
    "h = m.a.register_forward_hook(lambda s, i, o: o * 9)",
)
_change(
    "forward_hook_with_kwargs",
    "self.a(x)",
    "m.a.register_forward_hook(lambda s, i, k, o: o * 9, with_kwargs=True)",
)
_change(
    "forward_hook_global",
    "self.a(x)",
    "h = torch.nn.modules.module.register_module_forward_hook(lambda s, i, o: o * 9)\n"
    "enter(contextlib.closing(types.SimpleNamespace(close=h.remove)))",
)
_change(
    "forward_pre_hook_global",
    "self.a(x)",
    "h = torch.nn.modules.module.register_module_forward_pre_hook(lambda s, i: (i[0] * 9,))\n"
    "enter(contextlib.closing(types.SimpleNamespace(close=h.remove)))",
)
_change(
    "hook_on_leaf_without_parameters",
    "self.act(x)",
    "m.act.register_forward_hook(lambda s, i, o: o * 9)",
)
_change(
    "hook_on_part_of_sequential",
    "self.seq(x)",
    "m.seq[1].register_forward_hook(lambda s, i, o: o * 9)",
)
_change(
    "hooks_counted",
    "x * (1 + len(self.a._forward_hooks))",
    "m.a.register_forward_hook(lambda s, i, o: None)",
)
_change(
    "parametrization",
    "self.a(x)",
    """
class P(nn.Module):
    def forward(self, w): return w * 9
import torch.nn.utils.parametrize
torch.nn.utils.parametrize.register_parametrization(m.a, "weight", P())
""",
)
_change(
    "weight_norm_old",
    "self.a(x)",
    """
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.nn.utils.weight_norm(m.a)
m.a.weight_g.data.mul_(3)
""",
)
_change(
    "pruned",
    "self.a(x)",
    "import torch.nn.utils.prune\ntorch.nn.utils.prune.l1_unstructured(m.a, 'weight', 0.5)",
)
_change("forward_on_instance", "self.a(x)", "m.a.forward = lambda v: v * 9")
_change("forward_on_itself", "self.a(x)", "m.forward = lambda v: v * 9")
_change("forward_of_class", "self.a(x)", "M.forward = lambda self, v: v * 9")
_change("forward_code", "self.a(x)", "M.forward.__code__ = (lambda self, v: v * 9).__code__")
_change(
    "call_of_class",
    "self.a(x)",
    "A.__call__ = lambda self, v: v * 9",
    "class A(nn.Linear): pass\nm.a = A(3, 3)",
)
_change(
    "getattr_of_class",
    "x * self.zzz",
    "M.__getattr__ = other",
    """
old = nn.Module.__getattr__
def one(self, name): return 2 if name == "zzz" else old(self, name)
def other(self, name): return 9 if name == "zzz" else old(self, name)
M.__getattr__ = one
""",
)
_change("class_of_part_reassigned", "self.act(x - 2)", "m.act.__class__ = nn.Tanh")
_change(
    "isinstance_of_part", "x * (1 if isinstance(self.act, nn.ReLU) else 2)", "m.act = nn.Tanh()"
)
_change("eps", "self.norm(x)", "m.norm.eps = 1.0")
_change("momentum", "self.norm(x) + self.norm.running_mean", "m.norm.momentum = 0.9")
_change("track_running_stats", "self.norm(x)", "m.norm.track_running_stats = False; m.norm.eval()")
_change("running_statistics", "self.norm(x)", "m.norm.running_mean.add_(5)", "m.eval()")
_change("in_features", "x * self.a.in_features", "m.a.in_features = 9")
_change("inplace_flag", "self.act(x)", "m.act.inplace = True")
_change("state_loaded", "self.a(x)", "m.a.load_state_dict(m.b.state_dict())")
_change("vars_of_module", "x * (1 if 'zzz' in self.__dict__ else 2)", "m.zzz = 5")
_change("modules_dict", "x * (1 if 'zzz' in self._modules else 2)", "m.zzz = nn.Tanh()")
_change(
    "parameters_dict",
    "x * (1 if 'zzz' in self._parameters else 2)",
    "m.zzz = nn.Parameter(torch.ones(1))",
)
_change("buffer_becomes_attribute", "x * self.buf", "del m.buf; m.buf = torch.full((3,), 7.)")
_change(
    "attribute_hides_parameter", "x * self.a.bias", "m.a.__dict__['bias'] = torch.full((3,), 7.)"
)
_change(
    "method_of_module",
    "self.extra(x)",
    "M.extra = lambda self, v: v * 5",
    "M.extra = lambda self, v: v * 2",
)
_change(
    "property_of_module",
    "x * self.prop",
    "M.prop = property(lambda self: 5)",
    "M.prop = property(lambda self: 2)",
)
_change("container_of_modules", "self.many[0](x)", "m.many[0] = nn.Tanh()", "m.many = [nn.ReLU()]")
_change("function_attribute", "self.fn(x)", "m.fn = torch.cos", "m.fn = torch.sin")
_change("config_object", "x * self.cfg.k", "m.cfg.k = 5", "m.cfg = types.SimpleNamespace(k=2)")
modules(
    "full_backward_hook",
    f"""{_A}
def f(x):
    y = x.clone().requires_grad_()
    m(y).sum().backward()
    return y.grad
args = t(1),
""",
    "m.a.register_full_backward_hook(lambda s, gi, go: (gi[0] * 9,))",
)
modules(
    "gradient_through_compiled",
    f"""{_A}
def f(x):
    return m(x)
args = t(1).requires_grad_(),
""",
    "args = t(1),\nm.requires_grad_(False)",
)
modules(
    "module_argument",
    f"""{_A}
def f(x, m): return m(x)
args = t(1), nn.Tanh()
""",
    "args = t(1), nn.ReLU()",
)
modules(
    "module_argument_same_class",
    f"""{_A}
torch.manual_seed(1)
def f(x, m): return m(x)
args = t(1), nn.Linear(3, 3)
""",
    "args = t(1), nn.Linear(3, 3)",
)
modules(
    "module_argument_other_shape",
    f"""{_A}
torch.manual_seed(1)
def f(x, m): return m(x)
args = t(1), nn.Linear(3, 3)
""",
    "args = t(1), nn.Linear(3, 4)",
)
modules(
    "module_in_list",
    f"""{_A}
L = [nn.ReLU()]
def f(x): return L[0](x - 2)
args = t(1),
""",
    "L[0] = nn.Tanh()",
)
modules(
    "module_global_replaced",
    f"""{_A}
g = nn.ReLU()
def f(x): return g(x - 2)
args = t(1),
""",
    "g = nn.Tanh()",
)
