"""Which sizes are dynamic: marks that leave a size unknown, and the list in torch's setting."""

from __future__ import annotations

import pytest
import torch

import tc
from tc.compiler.capture.dynamism import listed
from tc.compiler.errors import OptionError

WEIGHT = torch.linspace(-1, 1, 15).reshape(3, 5)
PROGRAMS = {
    "sum": lambda x: x.sin() + x.sum(0),
    "product": lambda x: (x @ WEIGHT).relu(),
    "gram": lambda x: x @ x.t(),
    "cat": lambda x: torch.cat([x, x]),
    "view": lambda x: x.view(-1) * 2,
    "reshape": lambda x: x.reshape(x.size(0) * 3).cos(),
    "transposed": lambda x: x.t().contiguous() + 1,
    "expand": lambda x: x.unsqueeze(0).expand(2, -1, -1) * 2,
    "softmax": lambda x: x.softmax(0),
    "slice": lambda x: x[1:] * 2,
    "maximum": lambda x: x.amax(1),
    "outer": lambda x: x[:, None] + x[None],
    "factory": lambda x: torch.arange(x.size(0)) * x[:, 0],
    "size": lambda x: x * x.size(0),
    "flip": lambda x: x.flip(0) + 1,
    "cumsum": lambda x: x.cumsum(0),
}


@pytest.fixture(autouse=True)
def fresh():
    tc.reset()
    tc.counters.clear()
    yield
    tc.reset()


def graphs():
    return tc.counters["stats"]["unique_graphs"]


@pytest.mark.sample(7)
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_unbacked_size_has_one_code_for_0_1_and_more(name, trains):
    program = PROGRAMS[name]
    compiled = tc.compile(program, fullgraph=True)
    for size in (4, 1, 0, 7):
        x = torch.randn(size, 3, requires_grad=trains)
        same = x.detach().clone().requires_grad_(trains)
        tc.mark_unbacked(x, 0)
        have, want = compiled(x), program(same)
        torch.testing.assert_close(have, want)
        if trains:
            have.sum().backward()
            want.sum().backward()
            torch.testing.assert_close(x.grad, same.grad)
    assert graphs() == 1


def test_a_condition_on_an_unbacked_size_breaks_and_check_decides_it():
    x = torch.ones(10)
    tc.mark_unbacked(x, 0)
    with pytest.raises(tc.exc.UserError, match="u0 > 4"):
        tc.compile(lambda x: x * 2 if x.size(0) > 4 else x, fullgraph=True)(x)

    @tc.compile(fullgraph=True)
    def f(x):
        torch._check(x.size(0) > 4)
        return x * 2 if x.size(0) > 4 else x

    assert f(x).sum() == 20


@pytest.mark.parametrize("other", [4, 3])
def test_an_unbacked_size_that_must_be_fixed_is_an_error(other):
    x = torch.ones(4)
    tc.mark_unbacked(x, 0)
    error = torch.fx.experimental.symbolic_shapes.ConstraintViolationError
    with pytest.raises((error, RuntimeError)):
        tc.compile(lambda x: x + torch.ones(other), fullgraph=True)(x)


def test_bounds_of_an_unbacked_size():
    f = tc.compile(lambda x: x * 2 if x.size(0) >= 2 else x, fullgraph=True)
    for size in (4, 2, 8):
        x = torch.ones(size)
        tc.mark_unbacked(x, 0, min=2, max=8)
        assert f(x).sum() == size * 2
    assert graphs() == 1


def test_dynamic_sources_lists_inputs():
    def f(x, number):
        return x * x.size(0) * number

    compiled = tc.compile(f)
    with torch.compiler.config.patch(dynamic_sources="L['x'], L['number']"):
        compiled(torch.ones(10), 3)
    for size in (20, 30):
        torch.testing.assert_close(compiled(torch.ones(size), size), f(torch.ones(size), size))
    assert graphs() == 1


@pytest.mark.parametrize("setting", ["L['x'](", "a[", "*"])
def test_dynamic_sources_that_are_no_pattern_are_an_error_of_the_setting(setting):
    compiled = tc.compile(lambda x: x + 1, backend="eager")
    with (
        torch.compiler.config.patch(dynamic_sources=setting),
        pytest.raises(OptionError, match=r"dynamic_sources lists .* nor a regular expr"),
    ):
        compiled(torch.ones(3))


def test_dynamic_sources_lists_one_dimension():
    compiled = tc.compile(lambda x: x * x.size(0))
    with torch.compiler.config.patch(dynamic_sources="L['x']:1"):
        assert listed() == (("L['x']", 1),)
        compiled(torch.ones(10, 10))
        compiled(torch.ones(10, 20))
        assert graphs() == 1
        compiled(torch.ones(20, 20))
    assert graphs() == 2


@pytest.mark.sample(4)
@pytest.mark.parametrize("numbers", [[5, 6, -2], [5.5, 6.5, -2.25]])
@pytest.mark.parametrize("copied", ["l[0:]", "[*l]", "l + []", "list(l)", "tuple(l)", "l * 1"])
def test_a_number_that_is_read_out_of_a_list_and_a_copy_has_one_symbol(numbers, copied):
    f = eval(f"lambda x, l: x.repeat(1, 2) if sum({copied}) > 2 * l[2] + 1 else x * l[1]")
    compiled = tc.compile(f, backend="eager", dynamic=True)
    for shift in (0, 1, 20):
        items = [number + shift for number in numbers]
        x = torch.ones(5, 3)
        torch.testing.assert_close(compiled(x, items), f(x, items))


@pytest.mark.parametrize(
    "text",
    [
        lambda n: "%d/%s" % (n, "rows"),  # noqa: UP031
        lambda n: "%d" % n,  # noqa: UP031
        lambda n: "%s" % [n, 2],
        lambda n: b"%d" % (n,),
        lambda n: f"{n:3d} {n}",
        lambda n: "{} {:d}".format("a", n),
    ],
)
def test_a_dynamic_size_may_be_written_as_text(text):
    def program(x):
        return x + 1, text(x.shape[0])

    compiled = tc.compile(program, dynamic=True, fullgraph=True, backend="eager")
    for n in (5, 7):
        x = torch.ones(n)
        assert compiled(x)[1] == program(x)[1]
