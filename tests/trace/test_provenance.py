"""From the user's lines to nodes and kernels, by PyTorch's maps, by comments, and by tc's maps."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_traces import unpacked

from tc.trace.provenance import CodeMap, View, code_map
from tc.trace.session import load

TRACES = unpacked()
HEAD = "V1120 09:14:22.968000 1 torch/x.py:1] "

CAPTURED = """\
def forward(self, L_x_):
    # File: /u/m.py:4 in f, code: h = lin(x)
    linear: "f32[3, 16][16, 1]cpu" = torch._C._nn.linear(l_x_)

    # File: /u/m.py:5 in f, code: return h.relu()
    h: "f32[3, 16][16, 1]cpu" = linear.relu();  linear = None
"""
ATEN = """\
class GraphModule(torch.nn.Module):
    def forward(self, primals_1):
        # File: /u/m.py:4 in f, code: h = lin(x)
        permute: "f32[8, 16]" = torch.ops.aten.permute.default(primals_1, [1, 0])
        addmm: "f32[3, 16]" = torch.ops.aten.addmm.default(primals_2, primals_3, permute)

        # File: /u/m.py:5 in f, code: return h.relu()
        relu: "f32[3, 16]" = torch.ops.aten.relu.default(addmm);  addmm = None
"""
CODE = """\
import torch

cpp_fused_relu_0 = async_compile.cpp_pybinding(['float*'], r'''
void kernel(float* p)
{ p[0] = 1; }
''')

def call(args):
    # Topologically Sorted Source Nodes: [linear], Original ATen: [aten.t, aten.addmm]
    HANDLEextern_kernels.addmm:1
    extern_kernels.addmm(primals_2, buf0)
    HANDLEcpp_fused_relu_0:2
    cpp_fused_relu_0(buf0)
    return (buf0,)
"""
MAPS = {"cppCodeToPost": {"extern_kernels.addmm:1": ["addmm"], "cpp_fused_relu_0:2": ["relu"]}}
TC_GRAPH = """\
backward graph
  in[0]  l_x_: f32[3, 8]
  relu: f32[3, 16] = aten.relu(l_x_)  # /u/m.py:5
  mean: f32[] = aten.mean(relu)  # /u/m.py:6 in f
  size: SymInt = mul(4, 5)
"""
TC_CODE = """\
def call(args):
    buf1 = empty((3, 16))
    k0_relu(l_x_, buf1)

/* aten.relu.default (relu) /u/m.py:5 in f */
void k0_relu(const float* restrict a) {
  for (;;) { x; }
}
/* aten.mean.default (mean) /u/m.py:6 in f */
void k1_mean(const float* restrict a) {
}
"""


def record(value: dict[str, Any], payload: str) -> str:
    ids = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    digest = hashlib.md5(payload.encode()).hexdigest()
    head = HEAD + json.dumps({**value, **ids, "has_payload": digest}) + "\n"
    return head + "".join(f"\t{row}\n" for row in payload.split("\n"))


def mapped(folder: Path, *records: tuple[str, str]) -> CodeMap:
    text = ""
    for name, payload in records:
        plain = name.startswith("inductor_provenance")
        value = {"artifact": {"name": name, "encoding": "json"}} if plain else {name: {}}
        text += record(value, payload)
    path = folder / "dedicated_log_torch_trace_a.log"
    path.write_text(text)
    session = load(path)
    found = code_map(session, session.compiles[0])
    found.verify()
    return found


def links(view: View) -> list[tuple[str, list[int], list[str]]]:
    return [
        (
            kernel.name,
            [line for _, line in kernel.places],
            [view.nodes[n].name for n in kernel.nodes],
        )
        for kernel in view.kernels
    ]


WANTED = [("extern_kernels.addmm", [4], ["addmm"]), ("cpp_fused_relu_0", [5], ["relu"])]


def test_by_the_maps_of_pytorch(tmp_path: Path) -> None:
    code = CODE.replace("HANDLE", "# [Provenance debug handles] ")
    found = mapped(
        tmp_path,
        ("dynamo_output_graph", CAPTURED), ("aot_forward_graph", ATEN),
        ("inductor_output_code", code),
        ("inductor_provenance_tracking_node_mappings", json.dumps(MAPS)),
    )  # fmt: skip
    assert found.linked
    (view,) = found.views
    assert (view.name, links(view)) == ("forward", WANTED)
    assert view.kernels[1].lines == [(11, 12), (2, 5)]
    assert found.quoted["/u/m.py", 5] == ("return h.relu()", "f")


def test_by_comments_where_no_map_was_recorded(tmp_path: Path) -> None:
    rows = [row for row in CODE.split("\n") if "HANDLE" not in row]
    found = mapped(
        tmp_path,
        ("dynamo_output_graph", CAPTURED), ("aot_inference_graph", ATEN),
        ("inductor_output_code", "\n".join(rows)),
    )  # fmt: skip
    assert found.linked
    assert links(found.views[0]) == WANTED


def test_by_the_comments_of_tc_in_both_directions(tmp_path: Path) -> None:
    found = mapped(
        tmp_path,
        ("dynamo_output_graph", CAPTURED),
        ("aot_forward_graph", TC_GRAPH), ("inductor_output_code", TC_CODE),
        ("aot_backward_graph", TC_GRAPH), ("inductor_output_code", TC_CODE),
    )  # fmt: skip
    assert found.linked
    assert [view.name for view in found.views] == ["forward", "backward"]
    for view in found.views:
        assert links(view) == [("k0_relu", [5], ["relu"]), ("k1_mean", [6], ["mean"])]
        assert view.kernels[0].lines == [(2, 2), (4, 7)]
        assert [node.place for node in view.nodes] == [("/u/m.py", 5), ("/u/m.py", 6), None]


def test_each_of_several_graphs_can_be_chosen(tmp_path: Path) -> None:
    one = [("aot_forward_graph", TC_GRAPH), ("inductor_output_code", TC_CODE)]
    found = mapped(tmp_path, ("dynamo_output_graph", CAPTURED), *one, *one)
    assert [view.name for view in found.views] == ["forward 1", "forward 2"]
    assert found.views[0].graph != found.views[1].graph


def test_a_compile_without_kernels_has_no_map(tmp_path: Path) -> None:
    assert not mapped(tmp_path, ("dynamo_output_graph", CAPTURED)).linked
    assert not mapped(tmp_path, ("dynamo_output_graph", ""), ("inductor_output_code", "x")).linked


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"no real traces in {TRACES}")
@pytest.mark.parametrize("name", ["simple", "train", "transformer", "recompile", "dynamic"])
def test_every_kernel_call_of_real_logs_is_found(name: str) -> None:
    session = load(TRACES / name)
    for compiled in session.compiles:
        found = code_map(session, compiled)
        assert found.linked
        codes = [one for one in compiled.artifacts if one.name == "inductor_output_code"]
        assert len(found.views) == len(codes)
        for view in found.views:
            text = session.text(compiled.artifacts[view.code])
            calls = re.findall(
                r"^ +(?:\w+ = )?(?:cpp_fused\w+|extern_kernels\.\w+|torch\.ops\.[\w.]+)\(",
                text,
                re.M,
            )
            assert len(view.kernels) == len(calls)
        names = [view.name for view in found.views]
        assert names == (["forward", "backward"] if len(codes) == 2 else ["inference"])


DAMAGED = st.tuples(
    st.sampled_from((CAPTURED, ATEN, CODE, TC_CODE, "{}")),
    st.integers(0, 400),
    st.text(max_size=8),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(DAMAGED, min_size=4, max_size=4))
def test_no_text_stops_it(tmp_path_factory: pytest.TempPathFactory, rows: Any) -> None:
    names = ("dynamo_output_graph", "aot_forward_graph", "inductor_output_code",
             "inductor_provenance_tracking_node_mappings")  # fmt: skip
    texts = [text[:at] + junk + text[at + 3 :] for text, at, junk in rows]
    safe = [text.encode("utf-8", "replace").decode().replace("\r", "") for text in texts]
    mapped(tmp_path_factory.mktemp("x"), *zip(names, safe, strict=True))
