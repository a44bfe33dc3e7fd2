"""Graphs of two compilers in one notation."""

from __future__ import annotations

from tc.tlparse.across import graph_text

TORCH = """class GraphModule(torch.nn.Module):
    def forward(self, L_w_: "f32[16, 16][16, 1]cpu", s7: "Sym(s7)", L_x_: "f32[s7, 16][16, 1]cpu"):
        l_w_ = L_w_
        l_x_ = L_x_

        # File: /a/prog.py:14 in forward, code: y = torch.relu(self.l(x)).sum(dim=-1)
        linear: "f32[s7, 16][16, 1]cpu" = torch._C._nn.linear(l_x_, l_w_, None);  l_w_ = None
        relu: "f32[s7, 16][16, 1]cpu" = torch.relu(linear);  linear = None
        y: "f32[s7][1]cpu" = relu.sum(dim = -1);  relu = None
        z: "f32[s7][1]cpu" = y.to(torch.float64, device = 'cpu') * s7;  y = None
        return (z,)
"""
OF_TC = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[s3, 16]", L_w_: "f32[16, 16]"):
        l_x_ = L_x_
        l_w_ = L_w_
        size = l_x_.size(0)
        gt = size > 2

        # File: /b/linear.py:134 in forward, code: return F.linear(input, self.weight, self.bias)
        linear: "f32[s3, 16]" = torch._C._nn.linear(l_x_, l_w_, None)
        relu_1: "f32[s3, 16]" = torch.relu(linear)
        sum_1: "f32[s3]" = relu_1.sum(dim=-1)
        mul: "f32[s3]" = sum_1.to(torch.float64, device='cpu') * size
        return (mul,)
"""
WANTED = """\
%0 = torch._C._nn.linear(l_x_, l_w_, None): f32[s0, 16]
%1 = torch.relu(%0): f32[s0, 16]
%2 = %1.sum(dim=-1): f32[s0]
%4 = %2.to(torch.float64, device='cpu') * %3: f32[s0]"""


def test_one_graph_in_two_notations_is_one_text() -> None:
    assert graph_text(TORCH) == graph_text(OF_TC) == WANTED


def test_what_differs_stays_different() -> None:
    for old, new in (("relu(linear)", "tanh(linear)"), ("l_x_, l_w_", "l_w_, l_x_"),
                     ('sum_1: "f32[s3]"', 'sum_1: "f32[s3, 1]"'), ("dim=-1", "dim=0")):  # fmt: skip
        assert graph_text(OF_TC.replace(old, new)) != WANTED, old


def test_texts_that_are_no_graph_hold_no_operations() -> None:
    assert graph_text("") == graph_text("x = 1\nhello: world") == ""


def test_places_on_the_stack_of_resume_functions_are_numbered() -> None:
    one, other = (f'    y: "f32[2]" = {name}.sin()' for name in ("l_stack0_", "l_inner1_"))
    assert graph_text(one) == graph_text(other) == "%1 = %0.sin(): f32[2]"
