"""Programs with one planted slowdown each, a function a family; and programs with none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from slowdown_hosts import MARK, Draw, Fault, Planted, program

_BREAK: Final = "TC1"


def broken(draw: Draw) -> Planted:
    """A graph break, in the model or in a loop of it."""
    ways: list[tuple[list[str], str]] = [
        ([f"if @x.abs().max() > 1e6:  {MARK}", "    @x = @x * 0.5"], ""),
        ([f"@x = @x * (0.5 + random.random())  {MARK}"], ""),
        ([f"print(@x.shape[0], file=QUIET)  {MARK}"], ""),
        ([f"time.sleep(0)  {MARK}"], ""),
        ([f"@x = @x + len(torch.nonzero(@x > 9)) * 0.0  {MARK}"], ""),
        ([f"@x = @x[@x[:, 0] > -99]  {MARK}"], ""),
        ([f"for k in range({draw.randint(2, 4)}):",
          f"    if @x.mean() > {draw.randint(5, 9)}:  {MARK}", "        @x = @x - 1",
          "    @x = @x * 0.9"], ""),
        ([f"while @x.abs().max() > 4:  {MARK}", "    @x = @x * 0.5"], ""),
        ([f"tc.graph_break()  {MARK}"], ""),
        ([f"with LOCK:  {MARK}", "    @x = @x * 1.5"], "LOCK = threading.Lock()\n"),
        ([f"for part in rows(@x):  {MARK}", "    @x = @x + part.mean() * 0.0"],
         "def rows(v):\n    for row in v:\n"
         f"        if row.sum() > 50:  {MARK}\n            yield row\n"),
        (["try:", f"    s = int(@x[0, 0] > 0)  {MARK}", "except ValueError:", "    s = 0",
          "@x = @x + s * 0.01"], ""),
        (["with torch.autograd.profiler.record_function('part'):",
          f"    if @x.sum() > 1e6:  {MARK}", "        @x = @x * 0.5"], ""),
        ([f"LOG.warning('a step of %d rows', @x.shape[0])  {MARK}"],
         "LOG.addHandler(logging.StreamHandler(QUIET))\nLOG.propagate = False\n"),
        ([f"QUIET.write('step')  {MARK}"], ""),
        ([f"key = hashlib.md5(b'step').hexdigest()  {MARK}", "@x = @x + len(key) * 0.0"], ""),
    ]  # fmt: skip
    body, top = draw.choice(ways)
    fault = Fault(tuple(body), top=top, width=draw.choice((16, 32, 48)), train=True)
    return Planted(program(draw, fault), (_BREAK,))


def item(draw: Draw) -> Planted:
    """A number read out of a tensor."""
    read = draw.choice(("@x.sum().item()", "float(@x.abs().max())", "@x.mean().tolist()",
                        "int(@x.argmax())", "@x[0, 0].item()"))  # fmt: skip
    use = draw.choice(("@x = @x / (1 + abs(s))", "@x = @x + s * 0.01"))
    fault = Fault((f"s = {read}  {MARK}", use), width=draw.choice((16, 64, 96)), train=True)
    return Planted(program(draw, fault), (_BREAK,))


def disabled(draw: Draw) -> Planted:
    """A function that no tracer may or can go into, called in the middle."""
    top, line = draw.choice((
        ("@tc.disable\ndef noted(v):\n    return v.clamp(-3, 3)\n", "@x = noted(@x)"),
        ("@tc.disable\ndef noted(v):\n    return sum(n for n in range(3000)) * 0.0\n",
         "@x = @x + noted(@x)"),
        ("@tc.disable\ndef noted(v):\n    QUIET.seek(0)\n", "noted(@x)"),
        ("class Probe(torch.nn.Module):\n    @tc.disable\n    def forward(self, v):\n"
         "        return v * 1.01\n\n\nprobe = Probe()\n", "@x = probe(@x)"),
        ("", "@x = @x + len(@x.detach().numpy().tobytes()) * 0.0"),
        ("", "@x = @x + (@x.data_ptr() % 2) * 0.0"),
    ))  # fmt: skip
    fault = Fault((f"{line}  {MARK}",), top=top, width=draw.choice((16, 32)), train=True)
    return Planted(program(draw, fault), (_BREAK,))


def changing(draw: Draw) -> Planted:
    """A value of Python's that differs from step to step: each has the function compiled again."""
    many = draw.choice((5, 30))
    ways = (
        Fault((f"@x = @x * (1 + @me.turn * 1e-3)  {MARK}", "@me.turn += 1"),
              init=("@me.turn = 0",)),
        Fault((f"@x = @x * @me.scale  {MARK}",), init=("@me.scale = 1.0",),
              loop=(f"@me.scale = 1.0 / (1 + turn % {many})",)),
        Fault((f"@x = @x + len(@me.mode) * 0.01  {MARK}",), init=("@me.mode = ''",),
              loop=(f"@me.mode = 'm' * (turn % {many})",)),
        Fault((f"if @me.mode == 'last':  {MARK}", "    @x = @x * 2"), init=("@me.mode = ''",),
              loop=(f"@me.mode = f'mode {{turn % {many}}}'",)),
        Fault((f"@x = @x + len(@me.past) * 1e-3  {MARK}",), init=("@me.past = []",),
              loop=(f"@me.past = [turn] * (turn % {many})",)),
        Fault((f"@x = @x * LEVEL  {MARK}",), top="LEVEL = 1.0\n",
              loop=(f"LEVEL = 0.5 + turn % {many}",)),
        Fault((f"for name in @me.names:  {MARK}", "    @x = @x + len(name) * 1e-3"),
              init=("@me.names = ()",),
              loop=(f"@me.names = ('a', 'bc')[turn % 2:] * (turn % {many})",)),
    )  # fmt: skip
    way = draw.choice(ways)
    fault = Fault(
        way.body, way.top, way.init, way.loop, width=draw.choice((16, 32)), calls=(40, 120),
        train=True,
    )  # fmt: skip
    return Planted(program(draw, fault), ("TC201", "TC209"))


def sizes(draw: Draw) -> Planted:
    """A size that differs from step to step, in code that needs its value."""
    body, top = draw.choice((
        ((f"for k in range(@x.shape[0]):  {MARK}", "    @x = @x + 0.01 * k"), ""),
        ((f"@x = @x * TABLE[@x.shape[0]]  {MARK}",),
         "TABLE = {n: 1.0 / n for n in range(1, 200)}\n"),
        ((f"key = f'{{@x.shape[0]}} rows'  {MARK}", "@x = @x + len(key) * 0.01"), ""),
    ))  # fmt: skip
    width, least, many = draw.choice((16, 32)), draw.randint(3, 9), draw.choice((4, 9, 12))
    given = f"torch.randn({least} + turn % {many}, {width})"
    fault = Fault(body, top, given=given, fresh=True, width=width, calls=(40, 120))
    return Planted(program(draw, fault), ("TC201", "TC209"))


def remade(draw: Draw) -> Planted:
    """Everything compiled is thrown away now and then, in the loop."""
    every = draw.choice((1, 1, 3))
    reset = f"if turn % {every} == 0:\n        tc.reset()  {MARK}" if every > 1 else (
        f"tc.reset()  {MARK}"
    )  # fmt: skip
    body = draw.choice((("@x = @x.softmax(-1)",), ("@x = @x + @x.mean(0)",)))
    fault = Fault(body, loop=(reset,), width=draw.choice((16, 32)), train=True)
    return Planted(program(draw, fault), ("TC306",))


def numbered(draw: Draw) -> Planted:
    """Equal layers that are compiled one by one, and differ by a number that they read."""
    many, width = draw.choice((4, 6, 12)), draw.choice((16, 32))
    line = draw.choice((
        "x = x * (1 + self.index)", "x = x + self.rates[self.index]",
        "x = x * 2 if self.index % 2 else x", "x = x + len(f'layer {self.index}')",
    ))  # fmt: skip
    text = f"""\
class Layer(torch.nn.Module):
    def __init__(self, index):
        super().__init__()
        self.linear = torch.nn.Linear({width}, {width})
        self.rates = {{n: n / 10 for n in range({many})}}
        self.index = index

    def forward(self, x):
        x = torch.relu(self.linear(x))
        {line}  {MARK}
        return x


layers = [tc.compile(Layer(n)) for n in range({many})]
x = torch.randn({draw.randint(2, 16)}, {width})
for turn in range({draw.randint(40, 100)}):
    with torch.no_grad():
        y = x
        for layer in layers:
            y = layer(y)
"""
    return Planted(text, ("TC201", "TC209"))


def unrolled(draw: Draw) -> Planted:
    """A long loop, of which the graph holds each iteration."""
    number = draw.randint(300, 700)
    body = draw.choice((
        (f"for k in range({number}):  {MARK}", f"    @x = torch.sin(@x) * 0.9 + k * 0.01  {MARK}"),
        (f"for k in range({number}):  {MARK}", f"    h = torch.tanh(@x)  {MARK}",
         f"    @x = @x + 0.1 * h.cumsum(-1)  {MARK}"),
        (f"for k in range({number}):  {MARK}", f"    @x = (@x @ @me.w).tanh()  {MARK}"),
    ))  # fmt: skip
    width = draw.choice((8, 16))
    fault = Fault(body, init=(f"@me.w = torch.randn({width}, {width})",), width=width,
                  calls=(20, 40))  # fmt: skip
    return Planted(program(draw, fault), ("TC303", "TC311"))


def layout(draw: Draw) -> Planted:
    """A large tensor copied, where the product that follows does not need it."""
    heads, length, width = draw.choice((4, 8)), draw.choice((512, 768)), draw.choice((64, 96, 128))
    order = draw.choice(("0, 2, 1, 3", "1, 0, 2, 3", "2, 1, 0, 3"))
    few = draw.choice((1, 2))
    given = f"torch.randn({heads}, {length}, {draw.choice((4, 8))}, {width})"
    copy = draw.choice((
        f"@x = @x.permute({order}).contiguous()  {MARK}",
        f"@x = @x.repeat_interleave({draw.choice((2, 3))}, dim=0)  {MARK}",
        f"@x = @x.repeat(1, 1, {draw.choice((2, 3))}, 1)  {MARK}",
        f"@x = torch.cat([@x, @x.flip(0)], dim=1)  {MARK}",
        f"@x = @x.transpose(0, 1).reshape(-1, {width})  {MARK}",
    ))  # fmt: skip
    body = (copy, f"@x = (@x.view(-1, {width}) @ @me.w).sum(0)")
    fault = Fault(body, init=(f"@me.w = torch.randn({width}, {few})",), given=given,
                  calls=(60, 120))  # fmt: skip
    return Planted(program(draw, fault), ("TC313",))


def fell_back(draw: Draw) -> Planted:
    """A graph that was captured, and that the compiler leaves to ATen."""
    body, end = draw.choice((
        ((f"@x.unsqueeze_(0)  {MARK}", "@x = @x.mean(0, keepdim=True)"), ()),
        ((f"bits = @x.view(torch.int32)  {MARK}",), ("@x = (@x, bits)",)),
        ((f"s = @x.relu().to_sparse()  {MARK}", "@x = torch.sparse.mm(s, @x)"), ()),
        ((f"s = @x.abs().to_sparse_csr()  {MARK}", "@x = s @ @x"), ()),
    ))  # fmt: skip
    size = draw.choice((64, 128, 200))
    loop = (f"for _ in range({draw.randint(3, 8)}):", "    @x = torch.tanh(@x) * 1.5")
    fault = Fault((*body, *loop, *end), given=f"torch.randn({size}, {size})", fresh=True,
                  calls=(100, 300))  # fmt: skip
    return Planted(program(draw, fault), ("TC701", _BREAK))


def memory_bound(draw: Draw) -> Planted:
    """A chain of element-wise operations over tensors larger than the caches."""
    rows, columns = draw.randint(1500, 3500), draw.randint(1500, 3500)
    steps = draw.sample(("@x * 2 + y", "torch.relu(y) - y", "@x.abs() + @x", "y * y - @x",
                         "torch.where(@x > y, @x, y)", "(@x - y).clamp(-1, 1)"), 3)  # fmt: skip
    names = draw.sample(("@x", "y", "z"), 3)
    chain = [f"{n} = {step}  {MARK}" for n, step in zip(names, steps, strict=True)]
    last = draw.choice(("@x = (@x, z)", "@x = (@x, y, z)", "@x = z + @x"))
    body = (f"y = @me.other  {MARK}", f"z = y  {MARK}", *chain, f"{last}  {MARK}")
    fault = Fault(body, init=(f"@me.other = torch.randn({rows}, {columns})",),
                  given=f"torch.randn({rows}, {columns})", calls=(40, 80))  # fmt: skip
    return Planted(program(draw, fault), ("TC312",))


def double(draw: Draw) -> Planted:
    """Values that become float64 by a constant, so that all that follows moves twice the bytes."""
    rows, columns = draw.randint(1200, 2500), draw.randint(1200, 2500)
    init, line = draw.choice((
        (f"@me.scale = torch.from_numpy(np.linspace(0, 1, {columns}))", "@x = @x * @me.scale"),
        (f"@me.scale = torch.ones({columns}, dtype=torch.float64)", "@x = @x + @me.scale"),
        ("@me.scale = 1", "@x = @x.double()"),
    ))  # fmt: skip
    body = (f"{line}  {MARK}", "y = torch.relu(@x) * 3", "@x = (@x.abs() + y, y)")
    fault = Fault(body, init=(init,), given=f"torch.randn({rows}, {columns})", calls=(40, 80))
    return Planted(program(draw, fault), ("TC312",), "float64")


def grown(draw: Draw) -> Planted:
    """A cache that is copied as a whole to add a few rows to it."""
    heads, width, old = draw.choice((8, 16)), draw.choice((64, 128)), draw.choice((2000, 3000))
    body = (f"@me.keys = torch.cat([@me.keys, @x], 1)  {MARK}",
            "@x = (@x @ @me.keys.transpose(1, 2)).softmax(-1) @ @me.keys")  # fmt: skip
    fault = Fault(body, init=(f"@me.keys = torch.randn({heads}, {old}, {width})",),
                  given=f"torch.randn({heads}, 1, {width})", calls=(100, 200))  # fmt: skip
    return Planted(program(draw, fault), ("TC313", "TC201"))


def tiny(draw: Draw) -> Planted:
    """Some fifty kernels that each do next to nothing."""
    number, width = draw.randint(45, 70), draw.choice((4, 8, 12))
    body, init, given = draw.choice((
        ((f"for w in @me.w:  {MARK}", f"    @x = torch.tanh(@x @ w)  {MARK}"),
         (f"@me.w = [torch.randn({width}, {width}) for _ in range({number})]",),
         f"torch.randn({draw.randint(1, 4)}, {width})"),
        ((f"for m, g in zip(@me.moving, @me.given):  {MARK}",
          f"    m.mul_(0.9).add_(g * @x)  {MARK}", "@x = @x + 1"),
         (f"@me.moving = [torch.zeros(n + 1) for n in range({number})]",
          f"@me.given = [torch.randn(n + 1) for n in range({number})]"), "torch.randn(1)"),
    ))  # fmt: skip
    fault = Fault(body, init=init, given=given, calls=(2000, 4000))
    return Planted(program(draw, fault), ("TC311",))


def guarded(draw: Draw) -> Planted:
    """Guards of some two thousand objects."""
    number, width = draw.randint(1800, 2600), draw.choice((16, 32))
    size = draw.choice(("2", "n % 5 + 1"))
    held = f"[torch.nn.Parameter(torch.ones({size})) for n in range({number})]"
    some, many = (150, 300), (4000, 8000)  # steps: guards of numbers take microseconds
    init, read, calls = draw.choice((
        (f"@me.held = torch.nn.ParameterList({held})", "n = sum(p.numel() for p in @me.held)",
         some),
        (f"@me.held = torch.nn.ParameterList({held})",
         "n = len([p for p in @me.held if p.requires_grad])", some),
        (f"@me.held = {{f'key {{n}}': n for n in range({number})}}",
         "n = 1 + sum(@me.held.values())", many),
        (f"@me.held = [float(n) for n in range({number})]", "n = max(@me.held)", many),
        (f"@me.held = [torch.nn.Identity() for n in range({number})]",
         "n = sum(one.training for one in @me.held)", some),
    ))  # fmt: skip
    fault = Fault((f"{read}  {MARK}", "@x = @x / (n + 1)"), init=(init,), width=width, calls=calls)
    return Planted(program(draw, fault), ("TC314",))


FAMILIES: Final[dict[str, Callable[[Draw], Planted]]] = {
    "break": broken,
    "item": item,
    "layout": layout,
    "fallback": fell_back,
    "memory": memory_bound,
    "tiny": tiny,
    "guards": guarded,
    "disabled": disabled,
    "changing": changing,
    "sizes": sizes,
    "remade": remade,
    "unrolled": unrolled,
    "numbered": numbered,
    "double": double,
    "grown": grown,
}


def sound(draw: Draw) -> Planted:
    """A model as it should be: nothing to find."""
    width = draw.choice((32, 64, 128))
    heads = draw.choice((2, 4))
    attend = (
        f"q, k, v = (@x @ @me.qkv).view(-1, 3, {heads}, {width // heads}).unbind(1)",
        "q, k, v = (one.transpose(0, 1) for one in (q, k, v))",
        "s = F.scaled_dot_product_attention(q, k, v)",
        "@x = @x + s.transpose(0, 1).flatten(1)",
    )
    qkv = f"@me.qkv = torch.nn.Parameter(torch.randn({width}, {3 * width}) / {width})"
    body, init = draw.choice((
        (("@x = @x + F.dropout(@x, 0.1)",), ()),
        (("@x = F.layer_norm(@x, @x.shape[-1:]) + @x",), ()),
        (attend, (qkv,)),
        (("@x = @me.norm(@x)", "@x = torch.softmax(@x, -1) * @x"),
         (f"@me.norm = torch.nn.BatchNorm1d({width})",)),
        (("@x = @x + @me.table[@x.argmax(-1)]",),
         (f"@me.table = torch.nn.Parameter(torch.randn({width}, {width}))",)),
        (("gate, up = (@x @ @me.up).chunk(2, -1)", "@x = @x + F.silu(gate) * up"),
         (f"@me.up = torch.nn.Parameter(torch.randn({width}, {2 * width}) / {width})",)),
    ))  # fmt: skip
    rows = draw.choice((8, 32, 128))
    fault = Fault(body, init=init, width=width, given=f"torch.randn({rows}, {width})", train=True)
    return Planted(program(draw, fault), ())
