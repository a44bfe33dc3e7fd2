"""Guards that are remembered fail exactly when the full ones would."""

from __future__ import annotations

import copy
import gc
import threading

import pytest
import torch
from torch import nn

import tc
from tc.compiler.capture.guards import memo
from tc.compiler.runtime.memo import memo_type

pytestmark = pytest.mark.skipif(memo_type() is None, reason="nothing remembers on this Python")


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = 2
        self.table = {"shift": 1.0}

    def forward(self, x):
        return self.linear(x) * self.scale + self.table["shift"]


class Slower(Layer):
    def forward(self, x):
        return self.linear(x) * 7


class Model(nn.Module):
    def __init__(self, layers=6):
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Counting:
    """Compiles a module with a backend that counts, and compares with eager."""

    def __init__(self, model):
        tc.reset()
        self.graphs = 0
        self.model = model
        self.compiled = tc.compile(model, backend=self.backend)
        self.x = torch.randn(2, 4)

    def backend(self, gm, examples):
        self.graphs += 1
        return gm.forward

    def call(self, model=None):
        torch.testing.assert_close(self.compiled(self.x), (model or self.model)(self.x))
        return self.graphs


def set_dict(m):
    layer = m.layers[2]
    layer.__dict__ = {**layer.__dict__, "scale": 5}


def swap_data(m):
    m.layers[0].linear.weight.data = (
        torch.ones(4, 4, dtype=torch.float64).float()[:, :1].expand(4, 4)
    )


CHANGES = {
    "attribute": lambda m: setattr(m.layers[3], "scale", 3),
    "dict item": lambda m: m.layers[3].table.update(shift=4.0),
    "hook": lambda m: m.layers[5].linear.register_forward_hook(lambda *a: a[2] + 1),
    "forward on the instance": lambda m: setattr(m.layers[1], "forward", lambda x: x + 1),
    "class of a submodule": lambda m: setattr(m.layers[1], "__class__", Slower),
    "submodule replaced": lambda m: m.layers.__setitem__(0, Slower()),
    "submodule added": lambda m: m.layers.append(Layer()),
    "submodule removed": lambda m: m.layers.__delitem__(0),
    "__dict__ assigned": set_dict,
    "memory layout of a parameter": swap_data,
    "requires_grad": lambda m: m.layers[4].linear.weight.requires_grad_(False),
    "parameter for buffer": lambda m: setattr(m.layers[4].linear, "bias", None),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_recompiles(change):
    it = Counting(Model())
    assert it.call() == it.call() == 1
    change(it.model)
    assert it.call() > 1
    graphs = it.call()
    assert it.call() == graphs


HARMLESS = {
    "parameter replaced": lambda m: setattr(
        m.layers[0].linear, "weight", nn.Parameter(torch.randn(4, 4))
    ),
    "values of a parameter": lambda m: nn.init.ones_(m.layers[0].linear.weight),
    "an attribute that nobody reads": lambda m: setattr(m.layers[0], "comment", "x"),
    "equal attribute": lambda m: setattr(m.layers[0], "scale", 2),
    "state loaded": lambda m: m.load_state_dict(Model().state_dict()),
    "submodule of the same kind": lambda m: m.layers.__setitem__(0, Layer()),
}


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
def test_what_the_code_does_not_rest_on_does_not_recompile(change):
    it = Counting(Model())
    assert it.call() == it.call() == 1
    for _ in range(3):
        change(it.model)
        assert it.call() == it.call() == 1


def test_guards_hold_again_when_a_change_is_undone():
    it = Counting(Model())
    it.call()
    for scale in (3, 2, 3, 2):
        it.model.layers[0].scale = scale
        assert it.call() == it.call() <= 2
    assert it.graphs == 2


def test_one_code_for_many_modules():
    tc.reset()
    models = [Model() for _ in range(12)]
    its = [Counting(model) for model in models]
    for it in its[1:]:
        it.backend = its[0].backend
        it.compiled = tc.compile(it.model, backend=its[0].backend)
    its[0].compiled = tc.compile(models[0], backend=its[0].backend)
    for _ in range(3):
        for it in its:
            it.call()
    assert its[0].graphs == 1


@pytest.mark.usefixtures("only_new_garbage")
def test_nothing_is_kept_alive():
    it = Counting(Model())
    it.call(), it.call()
    alive = [torch._C._WeakTensorRef(it.model.layers[0].linear.weight)]
    twin = copy.deepcopy(it.model)
    it.model = it.compiled = None
    gc.collect()
    assert alive[0].expired()
    it.model = twin
    it.compiled = tc.compile(twin, backend=it.backend)
    it.call(), it.call()


def test_threads_that_change_modules_see_their_own_changes():
    it = Counting(Model(3))
    it.call()
    errors = []

    def work(model):
        try:
            compiled = tc.compile(model, backend=it.backend)
            for number in range(60):
                model.layers[0].scale = 2 + number % 2
                torch.testing.assert_close(compiled(it.x), model(it.x))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(Model(3),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_guards_of_modules_are_in_groups(monkeypatch):
    seen = []
    install = memo.Group.install
    monkeypatch.setattr(memo.Group, "install", lambda g, *rest: seen.append(g) or install(g, *rest))
    Counting(Model()).call()
    (group,) = seen
    assert group.base.name == "L['self']"
    assert len(group.tensors) == 12
    assert {guard.kind for guard in group.guards} >= {"TYPE", "LENGTH", "NOT_CONTAINS", "EQUALS"}
