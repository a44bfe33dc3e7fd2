"""Facts about tensors: what Python can ask of one besides its numbers."""

from __future__ import annotations

from fact_world import Family

tensors = Family("tensors")


def _read(name: str, expression: str, before: str, after: str, setup: str = "") -> None:
    """Add a fact about one argument ``x``: an expression that is not the same after the change."""
    body = f"def f(x):\n    return x * 0 + (1 if {expression} else 2)"
    tensors(name, f"{setup}\n{body}\nargs = ({before}),", f"args = ({after}),")


_BASE = "base = torch.arange(12.)"
_read("storage_offset_zero", "x.storage_offset() == 0", "base[:4]", "base[4:8]", _BASE)
_read("is_view", "x._is_view()", "torch.ones(4)", "base[:4]", _BASE)
_read("is_no_longer_view", "x._is_view()", "base[:4]", "torch.ones(4)", _BASE)
_read("base_is_none", "x._base is None", "torch.ones(4)", "base[:4]", _BASE)
_read("base_is_global", "x._base is base", "torch.arange(12.)[:4]", "base[:4]", _BASE)
_read("base_size", "x._base.numel() == 12", "torch.ones(12)[:4]", "torch.ones(13)[:4]")
_read(
    "output_nr",
    "x.output_nr == 0",
    "p[0]",
    "p[1]",
    "w = torch.ones(4, requires_grad=True)\np = (w * 2).split(2)",
)
_read("is_leaf", "x.is_leaf", "w", "w * 1", "w = torch.ones(4, requires_grad=True)")
_read("grad_fn_is_none", "x.grad_fn is None", "w", "w * 1", "w = torch.ones(4, requires_grad=True)")
_read(
    "grad_fn_name",
    "x.grad_fn.name() == 'MulBackward0'",
    "w * 1",
    "w + 1",
    "w = torch.ones(4, requires_grad=True)",
)
_read(
    "retains_grad",
    "x.retains_grad",
    "w * 1",
    "kept()",
    "w = torch.ones(4, requires_grad=True)\ndef kept():\n    k = w * 1\n    k.retain_grad()\n"
    "    return k",
)
_read("version", "x._version == 0", "torch.ones(3)", "torch.ones(3).add_(1)")
_read("requires_grad", "x.requires_grad", "torch.ones(3)", "torch.ones(3, requires_grad=True)")
_read("is_conj", "x.is_conj()", "z", "z.conj()", "z = torch.tensor([1 + 2j, 3 - 1j])")
_read(
    "is_neg", "x.is_neg()", "torch.ones(2)", "z.conj().imag", "z = torch.tensor([1 + 2j, 3 - 1j])"
)
_read("is_contiguous", "x.is_contiguous()", "torch.ones(3, 3)", "torch.ones(3, 3).t()")
_read(
    "is_contiguous_channels_last",
    "x.is_contiguous(memory_format=torch.channels_last)",
    "torch.ones(1, 2, 3, 3)",
    "torch.ones(1, 2, 3, 3).contiguous(memory_format=torch.channels_last)",
)
_read("stride", "x.stride()[0] == 3", "torch.ones(3, 3)", "torch.ones(3, 3).t()")
_read(
    "strides_of_one_element",
    "x.stride() == (3, 1)",
    "torch.ones(1, 3)",
    "torch.ones(3, 4).as_strided((1, 3), (4, 1))",
)
_read("storage_size", "x.untyped_storage().size() == 16", "torch.ones(4)", "torch.ones(8)[:4]")
_read("storage_nbytes", "x.untyped_storage().nbytes() == 16", "torch.ones(4)", "torch.ones(8)[:4]")
_read(
    "grad_is_none",
    "x.grad is None",
    "w",
    "g",
    "w = torch.ones(3, requires_grad=True)\ng = torch.ones(3, requires_grad=True)\n"
    "g.grad = torch.ones(3)",
)
_read(
    "is_inference",
    "x.is_inference()",
    "torch.ones(3)",
    "made()",
    "def made():\n    with torch.inference_mode():\n        return torch.ones(3)",
)
_read("is_shared", "x.is_shared()", "torch.ones(3)", "torch.ones(3).share_memory_()")
_read("dtype", "x.dtype == torch.float32", "torch.ones(3)", "torch.ones(3).double()")
_read("device", "x.device.type == 'cpu'", "torch.ones(3)", "torch.ones(3, device='meta')")
_read("ndim", "x.ndim == 1", "torch.ones(3)", "torch.ones(3, 1)")
_read("numel", "x.numel() == 3", "torch.ones(3)", "torch.ones(4)")
_read(
    "is_parameter",
    "isinstance(x, nn.Parameter)",
    "torch.ones(3, requires_grad=True)",
    "nn.Parameter(torch.ones(3))",
)
_read(
    "type",
    "type(x) is torch.Tensor",
    "torch.ones(3)",
    "torch.ones(3).as_subclass(Sub)",
    "class Sub(torch.Tensor): pass",
)
_read(
    "attribute_absent",
    "hasattr(x, 'tag')",
    "torch.ones(3)",
    "tagged()",
    "def tagged():\n    k = torch.ones(3)\n    k.tag = 1\n    return k",
)
_read(
    "attribute_default",
    "getattr(x, 'tag', 0) == 1",
    "torch.ones(3)",
    "tagged()",
    "def tagged():\n    k = torch.ones(3)\n    k.tag = 1\n    return k",
)
_read(
    "attribute_value",
    "x.tag == 1",
    "tagged(1)",
    "tagged(2)",
    "def tagged(v):\n    k = torch.ones(3)\n    k.tag = v\n    return k",
)
_read(
    "dict",
    "'tag' in x.__dict__",
    "torch.ones(3)",
    "tagged(2)",
    "def tagged(v):\n    k = torch.ones(3)\n    k.tag = v\n    return k",
)
_read(
    "backward_hooks",
    "x._backward_hooks is None",
    "w",
    "h()",
    "w = torch.ones(3, requires_grad=True)\ndef h():\n"
    "    k = torch.ones(3, requires_grad=True)\n    k.register_hook(lambda g: g * 2)\n    return k",
)
_read("is_sparse", "x.is_sparse", "torch.ones(3)", "torch.ones(3).to_sparse()")
_read("layout", "x.layout is torch.strided", "torch.ones(3)", "torch.ones(3).to_sparse()")
_read("is_complex", "x.is_complex()", "torch.ones(3)", "torch.ones(3) + 0j")
_read("element_size", "x.element_size() == 4", "torch.ones(3)", "torch.ones(3).half()")
_read("dim_order", "x.dim_order() == (0, 1)", "torch.ones(2, 3)", "torch.ones(3, 2).t()")
_read("is_nonzero_item", "x.item() == 1", "torch.tensor(1.)", "torch.tensor(3.)")
_read("is_set_to", "x.is_set_to(y)", "torch.ones(4)", "y", "y = torch.ones(4)")
_read(
    "grad_dtype",
    "x.grad.dtype == torch.float32",
    "w()",
    "w(torch.float64)",
    "def w(d=torch.float32):\n    k = torch.ones(3, requires_grad=True, dtype=d)\n"
    "    k.grad = torch.ones(3, dtype=d)\n    return k",
)
_read(
    "size_is_torch_size",
    "len(x.shape) == 2 and x.shape[1] == 1",
    "torch.ones(3, 1)",
    "torch.ones(3, 2)",
)
_read("zero_size", "x.shape[0] > 0", "torch.ones(3)", "torch.ones(0)")
_read("one_size", "x.shape[0] > 1", "torch.ones(3)", "torch.ones(1)")
_read(
    "same_storage_as_global",
    "x.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()",
    "torch.ones(4)",
    "base[:4]",
    _BASE,
)
_read("data_is_same", "x.data_ptr() == base.data_ptr()", "torch.ones(4)", "base[:4]", _BASE)
_read(
    "post_accumulate_hooks",
    "x._post_accumulate_grad_hooks is None",
    "w",
    "h()",
    "w = torch.ones(3, requires_grad=True)\ndef h():\n"
    "    k = torch.ones(3, requires_grad=True)\n"
    "    k.register_post_accumulate_grad_hook(lambda p: None)\n    return k",
)
tensors(
    "as_strided_default_offset",
    """
    base = torch.arange(12.)
    def f(x):
        return x.as_strided((2,), (1,)) + 1
    args = base[:4],
    """,
    "args = base[4:8],",
)
tensors(
    "as_strided_read_offset",
    """
    base = torch.arange(12.)
    def f(x):
        return x.as_strided((2,), (1,), x.storage_offset()) + 1
    args = base[:4],
    """,
    "args = base[4:8],",
)
tensors(
    "storage_offset_times",
    """
    base = torch.arange(12.)
    def f(x):
        return x + x.storage_offset()
    args = base[:4],
    """,
    "args = base[4:8],",
)
tensors(
    "version_times",
    "def f(x):\n    return x * 0 + x._version\nargs = torch.ones(3),",
    "args[0].add_(1)",
)
tensors(
    "version_after_write",
    """
    def f(x):
        before = x._version
        x.add_(1)
        return x * 0 + x._version * 10 + before
    args = torch.ones(3),
    """,
    "args = torch.ones(3).add_(1).add_(1),",
)
tensors(
    "gradient_value",
    """
    w = torch.ones(3, requires_grad=True); w.grad = torch.ones(3)
    def f(x):
        return w.grad * x
    args = torch.ones(3),
    """,
    "w.grad = torch.full((3,), 5.)",
)
tensors(
    "gradient_none",
    """
    w = torch.ones(3, requires_grad=True); w.grad = torch.ones(3)
    def f(x):
        return x + 1 if w.grad is None else w.grad * x
    args = torch.ones(3),
    """,
    "w.grad = None",
)
tensors(
    "data_replaced",
    """
    w = torch.ones(3)
    def f(x):
        return w.sum() + x.shape[0] * w.shape[0]
    args = torch.ones(3),
    """,
    "w.data = torch.ones(5)",
)
tensors(
    "data_replaced_dtype",
    """
    w = torch.ones(3)
    def f(x):
        return x * (1 if w.dtype == torch.float32 else 2)
    args = torch.ones(3),
    """,
    "w.data = torch.ones(3, dtype=torch.float64)",
)
tensors(
    "resized_in_place",
    """
    def f(x):
        return x.sum() * x.numel()
    args = torch.ones(3),
    """,
    "args[0].resize_(2)",
)
tensors(
    "transposed_in_place",
    """
    def f(x):
        return x.reshape(-1) + (1 if x.stride(0) == 3 else 2)
    args = torch.arange(9.).reshape(3, 3),
    """,
    "args[0].t_()",
)
tensors(
    "requires_grad_in_place",
    """
    def f(x):
        return x * 2
    args = torch.ones(3),
    """,
    "args[0].requires_grad_()",
)
tensors(
    "hook_on_input",
    """
    w = torch.ones(3, requires_grad=True)
    def f(x):
        (x * 2).sum().backward()
        g = x.grad.clone()
        x.grad = None
        return g
    args = w,
    """,
    "w.register_hook(lambda g: g * 10)",
)
tensors(
    "subclass_gets_torch_function",
    """
    class Sub(torch.Tensor): pass
    def f(x):
        return torch.sin(x)
    args = torch.ones(3).as_subclass(Sub),
    """,
    """
    def handler(cls, func, types, args=(), kwargs=None):
        return torch.full((3,), 7.)
    patch(Sub, "__torch_function__", classmethod(handler))
    """,
)
tensors(
    "subclass_method_replaced",
    """
    class Sub(torch.Tensor):
        def scale(self): return 2
    def f(x):
        return x * x.scale()
    args = torch.ones(3).as_subclass(Sub),
    """,
    "patch(Sub, 'scale', lambda self: 5)",
)
tensors(
    "subclass_class_attribute",
    """
    class Sub(torch.Tensor):
        k = 2
    def f(x):
        return x * x.k
    args = torch.ones(3).as_subclass(Sub),
    """,
    "patch(Sub, 'k', 5)",
)
tensors(
    "duck_gets_torch_function",
    """
    class Duck:
        def __init__(self): self.w = torch.ones(3)
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return args[0].w * 2
    def f(x, d):
        return x + torch.sin(d)
    args = torch.ones(3), Duck()
    """,
    """
    def handler(cls, func, types, args=(), kwargs=None):
        return args[0].w * 5
    patch(Duck, "__torch_function__", classmethod(handler))
    """,
)
tensors(
    "global_tensor_replaced",
    """
    W = torch.ones(3)
    def f(x):
        return x + W
    args = torch.ones(3),
    """,
    "W = torch.full((3,), 4.)",
)
tensors(
    "global_tensor_shape",
    """
    W = torch.ones(3)
    def f(x):
        return x + W.shape[0]
    args = torch.ones(3),
    """,
    "W = torch.ones(6)",
)
tensors(
    "scalar_tensor_in_shape",
    """
    def f(x, n):
        return x[: int(n)].sum() * 2
    args = torch.ones(5), torch.tensor(2)
    """,
    "args = torch.ones(5), torch.tensor(4)",
)
tensors(
    "bool_of_tensor",
    """
    def f(x):
        return x + 1 if x.sum() > 3 else x - 1
    args = torch.ones(2),
    """,
    "args = torch.ones(2) * 5,",
)
tensors(
    "generator_state",
    """
    g = torch.Generator().manual_seed(1)
    def f(x):
        g.manual_seed(g.initial_seed())
        return x + torch.rand(3, generator=g)
    args = torch.ones(3),
    """,
    "g.manual_seed(2)",
)
tensors(
    "generator_replaced",
    """
    def f(x, g):
        g.manual_seed(g.initial_seed())
        return x + torch.rand(3, generator=g)
    args = torch.ones(3), torch.Generator().manual_seed(1)
    """,
    "args = torch.ones(3), torch.Generator().manual_seed(2)",
)
