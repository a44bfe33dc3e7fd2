"""torchvision's operators where its extension does not load: it is built against CUDA's torch.

Importing this module defines `torchvision::nms` in Python, which torchvision asks for when it is
imported; it computes the others in Python by itself.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import types

import torch


def _nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    order = scores.argsort(descending=True, stable=True)
    kept = []
    while order.numel():
        first, order = order[0], order[1:]
        kept.append(int(first))
        least = torch.maximum(boxes[first, :2], boxes[order, :2])
        most = torch.minimum(boxes[first, 2:], boxes[order, 2:])
        shared = (most - least).clamp(min=0).prod(dim=1)
        order = order[shared / (areas[first] + areas[order] - shared) <= iou_threshold]
    return torch.tensor(kept, dtype=torch.int64)


def define() -> None:
    """Define what is missing, once."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", _nms, "CPU")
    KEPT.append(library)
    import torchvision  # noqa: F401 - all its modules, each with names of its own

    allow([module for name, module in sys.modules.items() if name.startswith("torchvision.")])


def allow(modules: list[types.ModuleType]) -> None:
    """Let modules that asked for the extension's operators use those of Python.

    Each has taken `_assert_has_ops` by name, so that replacing it where it is defined is too late.
    `_roi_align` compiles itself with torch.compile, which would make Inductor the reference.
    """
    for module in modules:
        if hasattr(module, "_assert_has_ops"):
            module._assert_has_ops = lambda: None  # type: ignore[attr-defined]
        compiled = vars(module).get("_roi_align")
        if compiled is not None:
            module._roi_align = inspect.unwrap(compiled)  # type: ignore[attr-defined]


KEPT: list[torch.library.Library] = []
installed = importlib.util.find_spec("torchvision") is not None
if installed and not hasattr(torch.ops.torchvision, "nms"):
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in [name for name in sys.modules if name.startswith("torchvision")]:
            del sys.modules[name]
        define()
