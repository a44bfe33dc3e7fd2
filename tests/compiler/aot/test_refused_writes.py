"""Writes in place that autograd refuses or allows: compiled code raises what eager raises."""

import pytest
import torch

import tc

PROGRAMS = {
    "leaf": lambda x: x.add_(1).sum(),
    "view_of_leaf": lambda x: x[0].add_(1).sum(),
}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


@program
def split_of_intermediate(x):
    a, b = (x * 2).split(2)
    a.add_(1)
    return (a * b).sum()


@program
def split_of_input(x):
    a, b = x.split(2)
    a.add_(1)
    return (a * b).sum()


@program
def unbind(x):
    first, *_ = (x * 2).unbind()
    first.mul_(2)
    return first.sum()


@program
def view_of_split(x):
    a, b = (x * 2).split(2)
    a[0].add_(1)
    return (a * b).sum()


@program
def base_of_chunks(x):
    y = x * 2
    a, _ = y.chunk(2)
    y.mul_(2)
    return a.sum()


@program
def view_made_without_gradients(x):
    y = x * 2
    with torch.no_grad():
        view = y[0]
    view.mul_(2)
    return y.sum()


@program
def base_of_view_made_without_gradients(x):
    y = x * 2
    with torch.no_grad():
        view = y.view(-1)
    y.mul_(2)
    return view.sum()


@program
def base_made_without_gradients(x):
    with torch.no_grad():
        y = x * 2
    y[0].mul_(x[0])
    return y.sum()


@program
def expanded(x):
    y = (x * 2)[:1].expand(4, 4)
    y.add_(1)
    return y.sum()


@program
def saved_for_backward(x):
    y = x.exp()
    y.add_(1)
    return y.sum()


@program
def saved_factor(x):
    y = x.sin()
    z = y * y
    y.mul_(2)
    return z.sum()


@program
def through_detach(x):
    y = x * 2
    y.detach().mul_(0)
    return (y * y).sum()


@program
def through_data(x):
    y = x * 2
    z = y * y
    y.data.mul_(0)
    return z.sum()


@program
def view_from_before_requires_grad(x):
    y = torch.ones(4, 4)
    view = y[0]
    y.requires_grad_()
    view.mul_(2)
    return y.sum()


@program
def detached_view(x):
    view = (x * 2)[0]
    view.detach_()
    return view


@program
def refused_and_caught(x):
    a, b = (x * 2).split(2)
    try:
        a.add_(1)
    except RuntimeError:
        return (a * b).sum() * 3
    return (a * b).sum()


def outcome(fn):
    x = torch.linspace(-1, 1, 16).reshape(4, 4).requires_grad_()
    result = fn(x)
    if result.requires_grad:
        result.sum().backward()
    return result.detach(), x.grad


@pytest.mark.sample(16)
@pytest.mark.parametrize("backend", ["eager", None])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_write_is_refused_where_eager_refuses_it(name, backend):
    fn = PROGRAMS[name]
    compiled = tc.compile(fn, **({"backend": backend} if backend else {}))
    try:
        want = outcome(fn)
    except RuntimeError as error:
        with pytest.raises(RuntimeError) as found:
            outcome(compiled)
        assert str(found.value).splitlines()[0] == str(error).splitlines()[0]
    else:
        torch.testing.assert_close(outcome(compiled), want)
