"""Warnings, copies, parameters, lazy modules, weak references and other objects of libraries."""

from __future__ import annotations

import copy
import functools
import operator
import re
import threading
import warnings
import weakref

import numpy as np
import pytest
import torch
from capture_harness import Programs, check, two_tensors

import tc
from tc.compiler.errors import Unsupported

program = Programs()
whole = functools.partial(program, graphs=1, breaks=0)
traced = torch.fx.symbolic_trace(lambda a: a + 0.5)
local = threading.local()
SDPAParams = torch.backends.cuda.SDPAParams


class Settings:
    def __init__(self):
        self.width = 1
        self.names = {"c": [1, 2]}


class Reduced:
    def __init__(self, n):
        self.n = n

    def __getstate__(self):
        return {"n": self.n + 1}

    def __setstate__(self, state):
        self.n = state["n"] * 10


settings = Settings()


@tc.compile(backend="eager")
def compiled_alone(x):
    return x.sin() * 10


# -- copies ----------------------------------------------------------------------------------
@whole()
def shallow_copy(x, y):
    twin = copy.copy(settings)
    twin.width = 5
    return x + twin.width + settings.width, twin.names is settings.names, copy.copy(Reduced(1)).n


@whole()
def deep_copy(x, y):
    twin = copy.deepcopy(settings)
    twin.names["c"].append(3)
    again = copy.deepcopy([1, (2, 3), {"a": {4}}])
    return x + len(twin.names["c"]) + len(settings.names["c"]), again, twin


@whole()
def identity_numbers(x, y):
    a, b = Settings(), Settings()
    seen = {id(a): "a", id(b): "b"}
    return x + 1, seen[id(b)], id(a) == id(a), id(a) == id(b), len(seen)


@whole()
def regular_expressions(x, y):
    found = re.match(r"(\d+)\.(\d+)", "2.13")
    pattern = re.compile("[a-c]+")
    old = torch.__version__ >= "2.0"
    return x + int(found.group(1)), pattern.sub("_", "xabcx"), found.groups(), old


@whole(dynamic=True)
def functions_of_operator_that_are_no_operators(x, y):
    n = x.shape[0]
    with torch.no_grad():
        found = (
            operator.indexOf([n, 2], 2),
            operator.countOf((n, n), n),
            operator.indexOf("ab", "b"),
        )
    held = [n]
    grown = operator.iconcat(held, (x,))
    try:
        operator.concat(n, 1)
    except TypeError as error:
        found = (*found, str(error))
    return operator.call(torch.add, x, n), found, grown is held, operator.concat([x], held)


@whole()
def tensors_for_numbers(x, y):
    half, kept = torch.tensor(0.5), [x, y, x + 1]
    blended = x.clone().addcmul_(x, y, value=half)
    (lerped,) = torch._foreach_lerp_([x.clone()], [y], half)
    powers = list(torch._foreach_pow(half, [half, half + 1]))
    shaped = x.new(y.shape).shape, x.new(y.size()).shape
    return blended, lerped, powers, shaped, kept[torch.as_tensor(2)], torch.tensor(3).item()


@whole()
def distributions(x, y):
    normal = torch.distributions.Normal(x, torch.tensor(1.0))
    return torch.distributions.Independent(normal, 1).log_prob(y)


@whole()
def limits_of_numpy(x, y):
    return x + np.finfo(np.float32).eps, np.iinfo("int16").bits, np.finfo("float16").nmant


@whole()
def copied_objects_with_tensors(x, y):
    held = Settings()
    held.tensor = x
    twin = copy.deepcopy(held)
    twin.tensor.add_(1)
    return twin.tensor, held.tensor + 1


# -- modules and parameters ------------------------------------------------------------------
@whole()
def modules_with_parameters(x, y):
    layer = torch.nn.Linear(4, 2)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(0.5)
    stack = torch.nn.Sequential(torch.nn.ReLU(), layer, torch.nn.Softmax(dim=-1))
    return stack[1:](x), len(stack), [name for name, _ in layer.named_parameters()]


@whole()
def parameters(x, y):
    made = torch.nn.Parameter(x * 2)
    return (made * y).sum(), isinstance(made, torch.nn.Parameter), made.requires_grad


@whole()
def other_compilers(x, y):
    return compiled_alone(x) + traced(y)


@pytest.mark.parametrize("kind", ["script", "fx"])
def test_functions_of_other_compilers(kind):
    inner = torch.jit.script(scripted) if kind == "script" else traced
    fn = tc.compile(lambda x: inner(x) * 2, backend="eager", fullgraph=True)
    assert torch.equal(fn(torch.ones(2)), inner(torch.ones(2)) * 2)


def scripted(a):
    return a + 0.67


def test_lazy_modules_are_initialised_by_their_first_call():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.ReLU(), torch.nn.LazyLinear(1))
    graphs = []

    def backend(module, inputs):
        graphs.append(module)
        return module.forward

    compiled = tc.compile(model, backend=backend, fullgraph=True)
    x = torch.ones(2, 4)
    assert torch.allclose(compiled(x), model(x))
    assert type(model[0]) is torch.nn.Linear
    assert tuple(model[2].weight.shape) == (1, 3)
    compiled(x)
    assert len(graphs) == 1


def test_modules_are_copied():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())

    def fn(m, x):
        return copy.deepcopy(m)(x)

    x = torch.ones(1, 2)
    assert torch.equal(tc.compile(fn, backend="eager")(model, x), model(x))


def test_run_uses_what_is_compiled():
    inner = tc.run(lambda x: x.sin() * 10)
    outer = tc.compile(lambda x: inner(x) + 1, backend="eager", fullgraph=True)
    assert torch.equal(outer(torch.ones(2)), torch.ones(2).sin() * 10 + 1)


def test_symbolic_tracing_of_compiled_functions_is_reported():
    compiled = tc.compile(lambda x: x + 1, backend="eager")
    with pytest.raises(RuntimeError, match="using FX"):
        torch.fx.symbolic_trace(compiled)


def test_jit_tracing_goes_past_compiled_functions():
    compiled = tc.compile(lambda x: x.sin() + 1, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = torch.jit.trace(lambda x: compiled(x), torch.ones(2))
    assert torch.equal(found(torch.zeros(2)), torch.ones(2))


def test_lazy_modules_after_stores_break():
    module = torch.nn.LazyLinear(2)
    seen = []

    def fn(x):
        seen.append(1)
        return module(x)

    with pytest.raises(Unsupported, match="lazy module"):
        tc.compile(fn, backend="eager", fullgraph=True)(torch.ones(1, 2))
    assert seen == []


# -- records, references, storages -----------------------------------------------------------
@whole(make=lambda: (*two_tensors(), torch.ones(1), torch.ones(1)))
def records(q, k, v, m):
    made = SDPAParams(q, k, v, m, 0.1, True, False)
    return made.query + 1, made.is_causal, made.dropout


def test_records_come_and_go():
    made = SDPAParams(*two_tensors(), *two_tensors(), 0.1, True, False)

    def fn(params):
        return params.query + 1, SDPAParams(params.key, *[params.value] * 3, 0.2, False, True)

    found, other = tc.compile(fn, backend="eager", fullgraph=True)(made)
    assert torch.equal(found, made.query + 1)
    assert other.query is made.key
    assert other.enable_gqa


@whole(make=lambda: (*two_tensors(), weakref.ref(settings)))
def weak_references(x, y, reference):
    own = weakref.ref(traced)
    return x + reference().width, own() is traced, weakref.ref(x)() is x


def test_dead_weak_references_are_noticed():
    target = Settings()
    fn = tc.compile(lambda x, r: x + (r() is None), backend="eager", fullgraph=True)
    reference = weakref.ref(target)
    assert fn(torch.zeros(1), reference).item() == 0
    del target
    assert fn(torch.zeros(1), reference).item() == 1


def test_storages():
    def fn(x):
        y = torch.sin(x + 1)
        size = x.untyped_storage().size()
        storage = x.untyped_storage()
        storage.resize_(0)
        return y.cos(), size, storage

    x = torch.ones(4)
    y, size, storage = tc.compile(fn)(x)
    assert torch.allclose(y, (torch.ones(4) + 1).sin().cos())
    assert size == 16
    assert x.untyped_storage().size() == 0
    assert storage is x.untyped_storage()


def test_storage_sizes_are_guarded():
    fn = tc.compile(lambda x: x + x.untyped_storage().nbytes(), backend="eager", fullgraph=True)
    assert fn(torch.zeros(2)).tolist() == [8, 8]
    assert fn(torch.zeros(4)[:2]).tolist() == [16, 16]


def test_thread_locals():
    def fn(x, space):
        space.x = x
        return x + space.n

    local.n = 2
    compiled = tc.compile(fn, backend="eager", fullgraph=True)
    x = torch.zeros(1)
    assert compiled(x, local).item() == 2
    assert local.x is x
    local.n = 3
    assert compiled(x, local).item() == 3


# -- warnings and logs -----------------------------------------------------------------------
def warned(fn, *args):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = fn(*args)
    return result, [(str(w.message), w.category, w.filename, w.lineno) for w in caught]


def warns(x):
    warnings.warn("first", stacklevel=1)

    def inner():
        warnings.warn("second", DeprecationWarning, stacklevel=2)

    inner()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("hidden", stacklevel=1)
    return x + 1


def warns_its_caller(x):
    warnings.warn("third", stacklevel=2)
    return x + 1


@pytest.mark.parametrize("fn", [warns, warns_its_caller])
def test_warnings_are_made_where_they_are_written(fn):
    compiled = tc.compile(fn, backend="eager", fullgraph=True)
    found, expected = warned(compiled, torch.ones(1))[1], warned(fn, torch.ones(1))[1]
    assert [w[:2] for w in found] == [w[:2] for w in expected]
    if fn is warns:
        assert found == expected


def test_warnings_that_raise_break():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="third"):
            tc.compile(warns_its_caller, backend="eager")(torch.ones(1))


@whole()
def warnings_caught(x, y):
    with warnings.catch_warnings(record=True) as log:
        moved = x.sin()
    return moved, log, type(warnings.catch_warnings(record=True))


def test_filters_are_what_they_were():
    before = warnings.filters
    tc.compile(warns, backend="eager", fullgraph=True)(torch.ones(1))
    assert warnings.filters is before


def test_printing_in_its_place_where_the_user_allows_it(capsys):
    def fn(x):
        print("moo")
        y = x + x
        print(y, 1, sep="|")
        return y * y

    with tc.config.patch(reorderable_logging_functions={print}):
        found = tc.compile(fn, backend="eager", fullgraph=True)(torch.ones(1))
    assert found.item() == 4
    assert capsys.readouterr().out == "moo\ntensor([2.])|1\n"
    with pytest.raises(Unsupported, match="print"):
        tc.reset()
        tc.compile(fn, backend="eager", fullgraph=True)(torch.ones(1))


def test_compiled_functions_as_arguments():
    fn = tc.compile(lambda x, f: f(x) * 2, backend="eager", fullgraph=True)
    assert fn(torch.ones(1), compiled_alone).item() == pytest.approx(
        compiled_alone(torch.ones(1)).item() * 2
    )


# -- memory ----------------------------------------------------------------------------------
def breaking(x):
    x = x + 1
    str(x)
    return x + 1


@pytest.mark.parametrize("fn", [lambda x: x.cos().sum(), breaking])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_inputs_die_with_their_last_use(fn, backend):
    x = torch.ones(4, requires_grad=True)
    seen = weakref.ref(x)
    tc.compile(fn, backend=backend)(x)
    del x
    assert seen() is None


def test_modules_die_with_their_last_use():
    module = torch.nn.Linear(2, 2)
    seen = weakref.ref(module), weakref.ref(module.weight)
    compiled = tc.compile(lambda m, x: m(x), backend=lambda graph, inputs: lambda *args: (1,))
    compiled(module, torch.ones(2, 2))
    del module
    assert [one() for one in seen] == [None, None]


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", program, ids=lambda case: case.name)
def test_program(case):
    check(case)
