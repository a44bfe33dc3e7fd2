"""Programs that nobody wrote: each drawn from a number, and printed as Python.

`draw` returns the text of one program: ``make()``, which returns its arguments, and
``program(*arguments)``, which returns a tensor or a tuple of them. A family of operations is a
function over a `Draw`, in `FAMILIES`; names in capitals are tables of expressions of ``x``, chosen
so that their arguments stay where the functions are defined. Not every text that is drawn is a
program that eager accepts; whoever runs them draws again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tc.compiler.core.table import Table

FLOATS = ("float32",) * 9 + ("float64",) * 4 + ("float16", "bfloat16") * 2
INTEGERS = ("int64", "int64", "int32", "int16", "int8", "uint8")
#: elements of the largest operand: one vector register to more than the last cache holds
LEAST, MOST = 16, 1 << 22
#: share of programs whose gradients are computed, and whose sizes are symbolic
TRAINED, SYMBOLIC = 0.2, 0.1

UNARY = """
    torch.exp(-x.abs())  torch.exp(x * 0.5)  torch.exp2(x)  torch.expm1(x)
    torch.log(x.abs() + 0.1)  torch.log2(x.abs() + 0.1)  torch.log10(x.abs() + 0.1)
    torch.log1p(x.abs())  torch.sqrt(x.abs())  torch.rsqrt(x.abs() + 0.1)  torch.sin(x)
    torch.cos(x)  torch.tan(x)  torch.asin(x.clamp(-1, 1))  torch.acos(x.clamp(-1, 1))
    torch.atan(x)  torch.sinh(x)  torch.cosh(x)  torch.tanh(x)  torch.asinh(x)
    torch.acosh(x.abs() + 1)  torch.atanh(x.clamp(-0.9, 0.9))  torch.erf(x)  torch.erfc(x)
    torch.erfinv(x.clamp(-0.9, 0.9))  torch.lgamma(x.abs() + 0.1)  torch.digamma(x.abs() + 0.1)
    torch.special.ndtr(x)  torch.special.i0(x)  torch.sinc(x)  torch.sigmoid(x)
    torch.special.logit(x, 0.01)  F.gelu(x)  F.gelu(x,approximate='tanh')  F.silu(x)  F.mish(x)
    F.softplus(x)  F.logsigmoid(x)  F.elu(x)  F.selu(x)  F.celu(x)  F.hardswish(x)
    F.hardsigmoid(x)  F.hardtanh(x)  F.leaky_relu(x)  F.relu6(x)  F.softsign(x)  F.tanhshrink(x)
    F.softshrink(x)  F.hardshrink(x)  torch.relu(x)  x.abs()  -x  x.square()  x.reciprocal()  x**3
    x.abs()**1.7  x.floor()  x.ceil()  x.round()  x.trunc()  x.frac()  x.sign()  x.clamp(-0.5, 0.8)
    x*1.7+0.3  x/3  torch.nan_to_num(x)  torch.xlogy(x,x.abs()+0.1)  torch.logit(x.sigmoid())
    torch.special.entr(x.abs())  torch.deg2rad(x)  torch.heaviside(x,x)
    torch.special.erfcx(x.abs())  torch.special.xlog1py(x,x.abs())  torch.polygamma(1,x.abs()+1)
"""
BINARY = """
    x+y  x-y  x*y  x/(y.abs()+0.5)  torch.maximum(x,y)  torch.minimum(x,y)  torch.atan2(x,y)
    torch.hypot(x,y)  torch.where(x>y,x,y*0.5)  torch.lerp(x,y,0.3)  torch.pow(x.abs()+0.1,y)
    torch.fmod(x,y.abs()+0.5)  torch.remainder(x,y.abs()+0.5)  torch.logaddexp(x,y)
    torch.copysign(x,y)  torch.addcmul(x,y,x,value=0.5)  torch.floor_divide(x,y.abs()+0.5)
    torch.fmax(x,y)  x.masked_fill(y>0.3,0.5)  (x>y).to(x.dtype)*x  torch.nextafter(x,y)
    torch.addcdiv(x,y,x.abs()+1)  torch.logaddexp2(x,y)  torch.xlogy(x,y.abs()+0.1)
    F.prelu(x,y.flatten()[:1])  torch.dist(x,y)+x  torch.clamp(x,max=y)  torch.ldexp(x,y.round())
"""
WHOLE = """
    x+y  x-y  x*y  x//(y.abs()+1)  x%(y.abs()+1)  x&y  x|y  x^y  ~x  x<<2  x>>1  x.abs()  -x
    torch.maximum(x,y)  torch.where(x>y,x,y)  x.clamp(-3,5)  x*3+1  (x>y).to(x.dtype)  x.sign()
    torch.bitwise_and(x,7)  x.square()  torch.div(x,3,rounding_mode='trunc').to(x.dtype)
    torch.gcd(x,y)  (x==y).to(x.dtype)+x  x.float().mul(0.3).to(x.dtype)  torch.logical_xor(x,y)|x
"""
REDUCE = """
    x.sum(D)  x.mean(D)  x.amax(D)  x.amin(D)  x.var(D)  x.std(D)  torch.logsumexp(x,D)
    torch.linalg.vector_norm(x,dim=D)  torch.linalg.vector_norm(x,ord=1,dim=D)
    x.sum(D,keepdim=True)  torch.var_mean(x,D)  torch.std_mean(x,D)  x.nansum(D)
    torch.linalg.vector_norm(x,ord=3,dim=D)  torch.count_nonzero(x>0,D)  torch.aminmax(x.flatten())
    x.sum()  x.mean()  x.std()  x.max()  torch.quantile(x.float().flatten()[:9000],0.3)
"""
ALONG = """
    x.max(K)  x.min(K)  x.argmax(K)  x.argmin(K)  x.prod(K)  (x>0).any(K)  (x>-3).all(K)
    torch.softmax(x,K)  torch.log_softmax(x,K)  F.softmin(x,K)  x.cumsum(K)  x.cumprod(K)
    x.cummax(K)  x.cummin(K)  x.logcumsumexp(K)  torch.diff(x,dim=K)  F.normalize(x,dim=K)
    torch.renorm(x,2,K,1.0)  F.cosine_similarity(x,x.flip(0),dim=K)  F.glu(x,K)  x.median(K)
    x.sort(K)  x.argsort(K)  x.topk(2,K)  x.kthvalue(2,K)  x.flip(K)  x.roll(3,K)
    torch.trapezoid(x,dim=K)  torch.linalg.norm(x,dim=K)  x.unfold(K,3,2)  x.mode(K)
    torch.cumulative_trapezoid(x,dim=K)  torch.nanmean(x,K)  x.msort()  x-x.mean(K,keepdim=True)
"""
LOSSES = """
    F.mse_loss(x,t)  F.l1_loss(x,t)  F.smooth_l1_loss(x,t)  F.huber_loss(x,t,delta=0.7)
    F.binary_cross_entropy_with_logits(x,t.sigmoid())
    F.binary_cross_entropy(x.sigmoid(),t.sigmoid())
    F.kl_div(x.log_softmax(-1),t.softmax(-1),reduction='batchmean')  F.poisson_nll_loss(x,t.abs())
    F.gaussian_nll_loss(x,t,x.abs()+0.1)  F.soft_margin_loss(x,t.sign())
    F.hinge_embedding_loss(x,t.sign())  F.cross_entropy(x,t.softmax(-1))  F.cross_entropy(x,i)
    F.nll_loss(x.log_softmax(-1),i)  F.multi_margin_loss(x,i)
    F.cross_entropy(x,i,label_smoothing=0.1)  F.cosine_embedding_loss(x,t,i.sign()*2-1)
    F.triplet_margin_loss(x,t,t.flip(0))  F.margin_ranking_loss(x,t,t.sign())
    F.multilabel_soft_margin_loss(x,(t>0).to(x.dtype))  F.mse_loss(x,t,reduction='none')
    F.pairwise_distance(x,t)
"""
NORMS = """
    F.layer_norm(x,x.shape[1:])  F.layer_norm(x,x.shape[-1:])  F.rms_norm(x,x.shape[-1:])
    F.group_norm(x,G,w,b)  F.group_norm(x,1)  F.instance_norm(x)  F.instance_norm(x,None,None,w,b)
    F.batch_norm(x,w*0,w.abs()+0.5,w,b)  F.batch_norm(x,None,None,w,b,True)
    F.local_response_norm(x,3)  F.relu(F.batch_norm(x,w*0,w.abs()+0.5,w,b))+x
"""
IMAGES = """
    F.interpolate(x,scale_factor=2,mode='nearest')
    F.interpolate(x,scale_factor=0.5,mode='bilinear')
    F.interpolate(x,size=(OH,OW),mode='bilinear')  F.interpolate(x,size=(OH,OW),mode='bicubic')
    F.interpolate(x,size=(OH,OW),mode='bilinear',align_corners=True)
    F.interpolate(x,size=(OH,OW),mode='area')
    F.interpolate(x,size=(OH,OW),mode='bilinear',antialias=True)
    F.interpolate(x,size=(OH,OW),mode='nearest-exact')  F.grid_sample(x,g,align_corners=False)
    F.grid_sample(x,g,mode='nearest',align_corners=False)
    F.grid_sample(x,g,padding_mode='border',align_corners=True)
    F.grid_sample(x,F.affine_grid(g[:,0,:2,:].repeat(1,1,2)[:,:,:3],x.shape,False),align_corners=False)
    F.unfold(x,3,padding=1)  F.unfold(x,2,stride=2)
    F.fold(F.unfold(x,3,padding=1),x.shape[2:],3,padding=1)  F.max_pool2d(x,2)
    F.max_pool2d(x,3,stride=2,padding=1)  F.avg_pool2d(x,2)  F.avg_pool2d(x,3,stride=1,padding=1)
    F.adaptive_avg_pool2d(x,(3,2))  F.adaptive_avg_pool2d(x,1)  F.adaptive_max_pool2d(x,2)
    F.lp_pool2d(x,2,2)  F.pixel_shuffle(x.repeat(1,4,1,1),2)
    F.pixel_unshuffle(F.pad(x,(0,x.shape[3]%2,0,x.shape[2]%2)),2)  F.pad(x,(1,2,0,3))
    F.pad(x,(1,1,1,1),mode='reflect')  F.pad(x,(2,1,1,2),mode='replicate')
    F.pad(x,(1,1,1,1),mode='circular')  F.conv2d(x,c,padding=1)
    F.relu(F.batch_norm(F.conv2d(x,c),m,m.abs()+1))  F.conv2d(x,d,padding=1,groups=x.shape[1])
    F.conv_transpose2d(x,c.transpose(0,1),stride=2)  F.channel_shuffle(torch.cat([x,x],1),2)
    F.max_unpool2d(*F.max_pool2d(x,2,return_indices=True),2)
"""
GATHERS = """
    x[i]  x[:,j]  x.index_select(0,i)  x.index_select(1,j)  x[i,j[:1]]  F.embedding(i,x)
    x.gather(1,k)  torch.take_along_dim(x,k,1)  x.take(k)  x.scatter(1,k,1.5)  x.scatter_add(1,k,s)
    x.index_add(0,i,x[i]*2)  x.index_put((i,),x[i]*2)  x.index_fill(0,i,0.5)
    x.index_copy(0,i,x[i]+1)  x[i]*x[i.flip(0)]+x[:1]  torch.stack([x[i],x[i]+1])
    x.scatter_reduce(1,k,s,'amax')  torch.cat([x,x[i]])  torch.cat([x*2,x],1)
    x.repeat_interleave(2,0)  x.repeat(2,3)  x.tril()  x.triu(1)  x.t().contiguous()  x.t()+1
    x.flip(1)*2  x.roll((1,2),(0,1))  x[::2]*3  x[:,1::2].exp()  F.one_hot(i,64)
    torch.bincount(i,minlength=64)  torch.searchsorted(x.sort(1)[0],s)
    torch.bucketize(x,torch.linspace(-1,1,9,dtype=x.dtype))  x.masked_fill(x>0.5,0)  x.diagonal()
    torch.where(k[:,:1]>3,x,0.5)  x.expand(3,*x.shape).sum(0)  torch.histc(x.float(),20)
"""
BAGS = """
    F.embedding_bag(i,x,o,mode=M)  F.embedding_bag(k,x,mode=M)  F.embedding(k,x).mean(1)
    F.embedding(k,x).sum(1)  F.embedding(k,x).amax(1)  F.layer_norm(F.embedding(k,x),x.shape[-1:])
    F.embedding(k,x)*x.shape[1]**0.5+x[:1]  F.embedding(k,x,padding_idx=0).max(1)[0]
"""
PRODUCTS = """
    x@w  F.linear(x,w.t(),b)  F.relu(x@w+b)  F.gelu(F.linear(x,w.t(),b))  torch.addmm(b,x,w)
    x@w[:,0]  torch.einsum('ij,jk->ki',x,w)  (x@w).softmax(-1)  (x@w).sum(0)  x.t()@x
    torch.outer(x[0],b)
    torch.bmm(x.view(1,*x.shape).expand(3,-1,-1),w.view(1,*w.shape).expand(3,-1,-1))
    torch.cdist(x,w.t())  torch.einsum('ij,jk,k->i',x,w,b)
    F.bilinear(x,x,w.new_ones(3,x.shape[1],x.shape[1]))
    torch.kron(x[:4,:4],w[:4,:4])  F.layer_norm(x+(x@w)@w.t(),x.shape[-1:])
    torch.tensordot(x,w,1)+b  F.scaled_dot_product_attention(x[None],x[None],x[None])
    (x@w).tanh()*torch.sigmoid(x@w)  torch.linalg.vecdot(x,x)
"""
COMPLEX = """
    x+y  x*y  x*y.conj()  x.abs()  x.angle()  torch.exp(x*0.1)  x.real*y.imag
    torch.view_as_real(x)*2  (x*y).sum(-1)  torch.polar(x.abs(),y.angle())  x.mean(0)
    torch.fft.fft(x)  torch.fft.ifft(x*y).real  x/y  torch.stack([x.real,x.imag],-1)
    torch.complex(x.real,y.real)*2  x.conj().flip(0)  torch.sqrt(x)
"""
CELLS = ("LSTMCell", "GRUCell", "RNNCell", "LSTM", "GRU", "RNN")


@dataclass(frozen=True)
class Drawn:
    """One program.

    Attributes:
        source: its Python.
        family: the name in `FAMILIES` that it was drawn from.
        symbolic: whether it is to be compiled for any size.
        trained: whether the gradients of its result are to be computed as well.
    """

    source: str
    family: str
    symbolic: bool
    trained: bool


@dataclass
class Draw:
    """What a family draws with, and the lines of the program so far."""

    rng: random.Random
    lines: list[str] = field(default_factory=list)
    makes: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def one(self, table: str | Sequence[str]) -> str:
        """Return an entry of a table."""
        # Entries are apart by two blanks; a single one belongs to an expression.
        entries = (
            [e.strip() for line in table.splitlines() for e in line.split("  ") if e.strip()]
            if isinstance(table, str)
            else list(table)
        )
        return self.rng.choice(entries)

    def between(self, low: int, high: int) -> int:
        """Return a number, small ones as likely as large ones by their logarithm."""
        return int(low * (high / low) ** self.rng.random() + 0.5)

    def shape(self, rank: int, most: int = MOST) -> list[int]:
        """Return sizes: half of the time round ones."""
        left = self.between(LEAST, most)
        sizes = []
        for k in range(rank):
            size = left if k == rank - 1 else self.between(1, max(left, 1))
            if self.rng.random() < 0.5 and size > 4:
                size = 1 << (size.bit_length() - 1)
            sizes.append(max(size, 1))
            left = max(left // size, 1)
        self.rng.shuffle(sizes)
        return sizes

    def dtype(self) -> str:
        return self.rng.choice(FLOATS)

    def argument(self, name: str, made: str) -> str:
        """Add an argument, made by an expression."""
        self.names.append(name)
        self.makes.append(f"    {name} = {made}")
        return name

    def tensor(self, name: str, shape: Sequence[int], dtype: str) -> str:
        """Add a tensor of floats, sometimes in another layout than row by row."""
        text = f"randn({list(shape)}, {dtype})"
        which = self.rng.random()
        if len(shape) > 1 and which < 0.12:
            turned = [*shape[:-2], shape[-1], shape[-2]]
            text = f"randn({turned}, {dtype}).transpose(-1, -2)"
        elif shape and which < 0.2:
            text = f"randn({[*shape[:-1], shape[-1] + 3]}, {dtype})[..., 1:-2]"
        elif len(shape) == 4 and which < 0.35:
            text += ".to(memory_format=torch.channels_last)"
        return self.argument(name, text)

    def other(self, name: str, shape: Sequence[int], dtype: str) -> str:
        """Add a tensor that broadcasts with a shape."""
        which, sizes = self.rng.random(), list(shape)
        if which < 0.2:
            sizes = sizes[1:]
        elif which < 0.5 and sizes:
            sizes[self.rng.randrange(len(sizes))] = 1
        return self.tensor(name, sizes, dtype)

    def indices(self, name: str, shape: Sequence[int], below: int) -> str:
        """Add a tensor of positions."""
        return self.argument(name, f"whole({list(shape)}, 0, {below})")

    def then(self, name: str, expression: str) -> str:
        """Add a line."""
        self.lines.append(f"    {name} = {expression}")
        return name

    def chain(self, most: int, shape: Sequence[int], dtype: str, other: bool = True) -> None:
        """Add up to so many elementwise operations on ``x``, and on one other operand ``y``."""
        count = self.rng.randint(0, most)
        if other and count > 1 and "y" not in self.names:
            self.other("y", shape, dtype)
        binary = "y" in self.names
        for _ in range(count):
            self.then("x", self.one(BINARY if binary and self.rng.random() < 0.4 else UNARY))


FAMILIES: Table[str, tuple[Callable[[Draw], None], int]] = Table("families of programs")


def family(weight: int) -> Callable[[Callable[[Draw], None]], Callable[[Draw], None]]:
    """Register a family, drawn as often as its weight says."""

    def add(made: Callable[[Draw], None]) -> Callable[[Draw], None]:
        FAMILIES.add(made.__name__.strip("_"), (made, weight))
        return made

    return add


@family(6)
def _chain(d: Draw) -> None:
    shape, dtype = d.shape(d.rng.randint(1, 4)), d.dtype()
    d.tensor("x", shape, dtype)
    d.other("y", shape, dtype)
    d.chain(6, shape, dtype)
    d.then("x", d.one(UNARY))


@family(2)
def _one(d: Draw) -> None:
    """One operation alone."""
    shape, dtype = d.shape(d.rng.randint(1, 4)), d.dtype()
    d.tensor("x", shape, dtype)
    d.other("y", shape, dtype)
    d.then("x", d.one(d.rng.choice((UNARY, BINARY))))


@family(2)
def _whole(d: Draw) -> None:
    """Integers."""
    shape, dtype = d.shape(d.rng.randint(1, 3)), d.rng.choice(INTEGERS)
    low = 0 if dtype == "uint8" else -9
    d.argument("x", f"whole({shape}, {low}, 60).to(torch.{dtype})")
    d.argument("y", f"whole({shape[-1:]}, {low}, 60).to(torch.{dtype})")
    for _ in range(d.rng.randint(1, 5)):
        d.then("x", d.one(WHOLE))
    if d.rng.random() < 0.3:
        d.then("x", d.one(("x.sum(-1)", "x.amax(0)", "x.cumsum(-1)", "x.float().mean(0)")))


@family(6)
def _reduction(d: Draw) -> None:
    rank = d.rng.randint(1, 4)
    shape, dtype = d.shape(rank), d.dtype()
    d.tensor("x", shape, dtype)
    d.chain(3, shape, dtype)
    dims = sorted(d.rng.sample(range(rank), d.rng.randint(1, rank)))
    d.then("r", d.one(REDUCE).replace("D", str(tuple(dims))))
    if d.rng.random() < 0.3:
        d.then("r", "r if isinstance(r, tuple) else torch.tanh(r.float()) * 2")


@family(5)
def _along(d: Draw) -> None:
    """Reductions, scans and sorts along one dimension."""
    rank = d.rng.randint(1, 4)
    shape, dtype = d.shape(rank, MOST // 4), d.dtype()
    d.tensor("x", shape, dtype)
    d.chain(2, shape, dtype)
    d.then("r", d.one(ALONG).replace("K", str(d.rng.randrange(rank))))


@family(3)
def _loss(d: Draw) -> None:
    shape, dtype = d.shape(2), d.dtype()
    shape[1] = max(shape[1], 2)
    d.tensor("x", shape, dtype)
    d.tensor("t", shape, dtype)
    d.indices("i", shape[:1], 2)
    d.chain(1, shape, dtype, other=False)
    d.then("r", d.one(LOSSES))


@family(4)
def _norm(d: Draw) -> None:
    rank, dtype = d.rng.randint(2, 4), d.dtype()
    channels = d.rng.choice((1, 3, 8, 16, 24, 64))
    rest = d.shape(rank - 1, MOST // channels)
    d.tensor("x", [rest[0], channels, *rest[1:]], dtype)
    d.argument("w", f"randn([{channels}], {dtype})")
    d.argument("b", f"randn([{channels}], {dtype})")
    d.chain(1, (), dtype, other=False)
    groups = d.rng.choice([g for g in (1, 2, 4, 8) if channels % g == 0])
    d.then("x", d.one(NORMS).replace("G", str(groups)))
    if d.rng.random() < 0.5:
        d.then("x", d.one(UNARY))


@family(5)
def _image(d: Draw) -> None:
    dtype = d.rng.choice(("float32",) * 5 + ("float64", "bfloat16"))
    n, c, h, w = d.between(1, 4), d.between(1, 32), d.between(3, 90), d.between(3, 90)
    d.tensor("x", [n, c, h, w], dtype)
    d.argument("g", f"randn({[n, d.between(2, 60), d.between(2, 60), 2]}, {dtype}) * 0.7")
    d.argument("c", f"randn({[d.between(1, 32), c, 3, 3]}, {dtype}) * 0.2")
    d.argument("d", f"randn({[c, 1, 3, 3]}, {dtype})")
    d.then("m", "c.mean((1, 2, 3))")
    text = d.one(IMAGES).replace("OH", str(d.between(2, 100))).replace("OW", str(d.between(2, 100)))
    if d.rng.random() < 0.3:
        d.then("x", d.one(UNARY))
    d.then("r", text)
    d.lines[:] = [line for line in d.lines if " m = " not in line or "m," in text]


@family(5)
def _gather(d: Draw) -> None:
    shape, dtype = d.shape(2, MOST // 4), d.dtype()
    shape = [max(s, 2) for s in shape]
    d.tensor("x", shape, dtype)
    few, each = d.between(1, 2000), d.between(1, min(shape[1], 64))
    d.indices("i", [few], min(shape[0], 64))
    d.indices("j", [each], shape[1])
    d.indices("k", [shape[0], each], shape[1])
    d.argument("s", f"randn({[shape[0], each]}, {dtype})")
    if d.rng.random() < 0.3:
        d.then("x", d.one(UNARY))
    d.then("r", d.one(GATHERS))


@family(2)
def _bag(d: Draw) -> None:
    """Embeddings, reduced."""
    rows, width, bags = d.between(4, 20000), d.between(1, 300), d.between(1, 400)
    d.argument("x", f"randn({[rows, width]}, {d.rng.choice(('float32', 'float32', 'float64'))})")
    each = d.between(1, 40)
    d.indices("k", [bags, each], rows)
    d.indices("i", [bags * each], rows)
    d.argument("o", f"torch.arange(0, {bags * each}, {each})")
    d.then("r", d.one(BAGS).replace("M", repr(d.rng.choice(("sum", "mean", "max")))))
    d.then("r", "r if isinstance(r, torch.Tensor) else r[0]")


@family(3)
def _cell(d: Draw) -> None:
    """Recurrent cells and networks."""
    kind, batch, steps = d.rng.choice(CELLS), d.between(1, 64), d.rng.randint(2, 8)
    wide, inner = d.between(2, 96), d.between(2, 96)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind.removesuffix("Cell")]
    d.argument("net", f"torch.nn.{kind}({wide}, {inner})")
    if kind.endswith("Cell"):
        d.argument("x", f"randn({[steps, batch, wide]}, float32)")
        d.argument("h", f"randn({[batch, inner]}, float32)")
        state = "(h, h)" if gates == 4 else "h"
        d.then("s", state)
        d.lines += [f"    for t in range({d.rng.randint(1, steps)}):", "        s = net(x[t], s)"]
        d.then("r", "s")
    else:
        d.argument("x", f"randn({[steps, batch, wide]}, float32)")
        d.then("r", "net(x)[0]")


@family(4)
def _product(d: Draw) -> None:
    m, k, n = d.between(1, 256), d.between(1, 256), d.between(1, 256)
    dtype = d.rng.choice(("float32",) * 5 + ("float64", "bfloat16"))
    d.tensor("x", [m, k], dtype)
    d.tensor("w", [k, n], dtype)
    d.argument("b", f"randn([{n}], {dtype})")
    if d.rng.random() < 0.3:
        d.then("x", d.one(UNARY))
    d.then("x", d.one(PRODUCTS))
    if d.rng.random() < 0.4:
        d.then("x", d.one(UNARY))


@family(1)
def _complex(d: Draw) -> None:
    shape = d.shape(d.rng.randint(1, 2), MOST // 8)
    for name in "xy":
        d.argument(
            name, f"randn({shape}, {d.rng.choice(('complex64', 'complex64', 'complex128'))})"
        )
    d.then("x", d.one(COMPLEX))
    if d.rng.random() < 0.5:
        d.then("x", d.one(("x.abs() * 2", "x.real.exp()", "x + 1", "x.sum()")))


HEAD = """import torch
import torch.nn.functional as F

float16, bfloat16, float32, float64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
complex64, complex128 = torch.complex64, torch.complex128


def randn(shape, dtype):
    wide = dtype if dtype.is_complex else torch.promote_types(dtype, float32)
    return torch.randn(shape, dtype=wide).to(dtype)


def whole(shape, low, high):
    return torch.randint(low, high, shape)
"""


def draw(seed: str) -> Drawn:
    """Return the program of a seed, which may be one that eager refuses."""
    rng = random.Random(seed)
    names = [name for name, _ in FAMILIES.rows()]
    chosen = rng.choices(names, [FAMILIES[name][1] for name in names])[0]
    d = Draw(rng)
    FAMILIES[chosen][0](d)
    used = [name for name in d.names if any(_mentions(line, name) for line in d.lines)]
    made = [line for name, line in zip(d.names, d.makes, strict=True) if name in used]
    arguments = ", ".join(used)
    result = d.lines[-1].split(" = ")[0].strip()
    text = "\n".join(
        [HEAD, "", "def make():", f"    torch.manual_seed({rng.randrange(1 << 20)})", *made,
         f"    return ({arguments},)", "", "", f"def program({arguments}):", *d.lines,
         f"    return {result}", ""]
    )  # fmt: skip
    trains = chosen not in ("whole", "complex") and rng.random() < TRAINED
    return Drawn(text, chosen, not trains and rng.random() < SYMBOLIC, trains)


def _mentions(line: str, name: str) -> bool:
    """Return whether a line has a name as a word."""
    text = line.split(" = ", 1)[-1]
    at = text.find(name)
    while at >= 0:
        before = text[at - 1] if at else " "
        after = text[at + len(name)] if at + len(name) < len(text) else " "
        if not (before.isalnum() or before in "_.") and not (after.isalnum() or after in "_="):
            return True
        at = text.find(name, at + 1)
    return False
