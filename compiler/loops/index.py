"""Integer index expressions: polynomials with integer coefficients over sizes, loop variables and
quotients; immutable and interned, so equal expressions are the same object.

In: Python ints, names of sizes, sympy expressions of `ShapeEnv` (see `lower/sympy_boundary.py`).
Out: canonical `Index` objects that print as Python. Sizes and loop variables are assumed to be
non-negative, sizes inside loops positive (a loop over an empty range evaluates nothing); the user's
numbers may be negative.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar, Union, cast
from weakref import WeakValueDictionary

Monomial = tuple["Atom", ...]
Term = tuple[Monomial, int]
SYMBOLS = ("size", "number")
NAMED = (*SYMBOLS, "counter", "var")
IndexLike = Union["Index", int]
Function = TypeVar("Function", bound=Callable[..., Any])


def remembered(function: Function) -> Function:
    """Keep results of an operation: the layers of a model ask for the same few hundred."""
    return cast(Function, lru_cache(1 << 14, typed=True)(function))


class Atom:
    """A factor that is not split further: a size, a loop variable, a quotient, a minimum….

    Attributes:
        kind: ``size``, ``number``, ``counter``, ``var``, ``floordiv``, ``mod``, ``min`` or ``max``.
        name: of a symbol or variable, else empty.
        args: operands; for a variable its size.
    """

    __slots__ = ("__weakref__", "args", "kind", "name", "text")
    kind: str
    name: str
    args: tuple[Index, ...]
    text: str

    def __new__(cls, kind: str, name: str, args: tuple[Index, ...]) -> Atom:
        key = (kind, name, args)
        found = _atoms.get(key)
        if found is None:
            found = super().__new__(cls)
            found.kind, found.name, found.args = kind, name, args
            found.text = _atom_text(kind, name, args)
            _atoms[key] = found
        return found

    def __reduce__(self) -> tuple[type[Atom], tuple[str, str, tuple[Index, ...]]]:
        return Atom, (self.kind, self.name, self.args)

    def __repr__(self) -> str:
        return self.text


class Index:
    """A polynomial: sorted terms ``(atoms, coefficient)``; the constant term has no atoms."""

    __slots__ = ("__weakref__", "_atoms", "_text", "terms")
    terms: tuple[Term, ...]
    _atoms: frozenset[Atom] | None
    _text: str | None

    def __new__(cls, terms: tuple[Term, ...]) -> Index:
        found = _indexes.get(terms)
        if found is None:
            found = super().__new__(cls)
            found.terms = terms
            found._atoms = found._text = None
            _indexes[terms] = found
        return found

    def __reduce__(self) -> tuple[type[Index], tuple[tuple[Term, ...]]]:
        return Index, (self.terms,)

    @property
    def constant(self) -> int | None:
        """Its value if it is a constant."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    def atoms(self) -> frozenset[Atom]:
        """Return all sizes and variables in it, also inside quotients."""
        if self._atoms is None:
            found: set[Atom] = set()
            for monomial, _ in self.terms:
                for atom in monomial:
                    if atom.kind in NAMED:
                        found.add(atom)
                    else:
                        found.update(*(arg.atoms() for arg in atom.args))
            self._atoms = frozenset(found)
        return self._atoms

    def variables(self) -> frozenset[Atom]:
        """Return the loop variables in it."""
        return frozenset(atom for atom in self.atoms() if atom.kind == "var")

    @remembered
    def __add__(self, other: IndexLike) -> Index:
        other = as_index(other)
        if not other.terms:
            return self
        if not self.terms:
            return other
        total = dict(self.terms)
        for monomial, coefficient in other.terms:
            total[monomial] = total.get(monomial, 0) + coefficient
        return _recombine(_from_dict(total))

    @remembered
    def __mul__(self, other: IndexLike) -> Index:
        other = as_index(other)
        if other is ONE or not self.terms:
            return self
        if self is ONE or not other.terms:
            return other
        total: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in other.terms:
                monomial = left + right
                if left and right:
                    monomial = tuple(sorted(monomial, key=_text))
                total[monomial] = total.get(monomial, 0) + a * b
        return _recombine(_from_dict(total))

    @remembered
    def __neg__(self) -> Index:
        return Index(tuple((monomial, -coefficient) for monomial, coefficient in self.terms))

    def __sub__(self, other: IndexLike) -> Index:
        return self + -as_index(other)

    def __radd__(self, other: int) -> Index:
        return self + other

    def __rsub__(self, other: int) -> Index:
        return as_index(other) - self

    def __rmul__(self, other: int) -> Index:
        return self * other

    def __floordiv__(self, other: IndexLike) -> Index:
        return floordiv(self, as_index(other))

    def __mod__(self, other: IndexLike) -> Index:
        return mod(self, as_index(other))

    def __repr__(self) -> str:
        if self._text is None:
            self._text = render(self)
        return self._text


_atoms: WeakValueDictionary[tuple[str, str, tuple[Index, ...]], Atom] = WeakValueDictionary()
_indexes: WeakValueDictionary[tuple[Term, ...], Index] = WeakValueDictionary()
_text = operator.attrgetter("text")


def _term_key(term: Term) -> tuple[int, str]:
    return -len(term[0]), "*".join(atom.text for atom in term[0])


def _from_dict(total: dict[Monomial, int]) -> Index:
    terms = [term for term in total.items() if term[1]]
    if len(terms) > 1:
        terms.sort(key=_term_key)
    return Index(tuple(terms))


@remembered
def const(value: int) -> Index:
    """Return the constant ``value``; a TypeError if it is no integer."""
    value = int(operator.index(value))
    return Index((((), value),)) if value else Index(())


ZERO = const(0)
ONE = const(1)


def as_index(value: IndexLike) -> Index:
    """Return an index for an int, or the index itself."""
    return value if isinstance(value, Index) else const(value)


def size(name: str) -> Index:
    """Return the symbolic size of that name."""
    return symbol(Atom("size", name, ()))


def number(name: str) -> Index:
    """Return the symbolic integer of that name, without known bounds."""
    return symbol(Atom("number", name, ()))


def counter(name: str) -> Index:
    """Return a counter of a loop in printed code, which is 0 or more: no size is 0 there."""
    return symbol(Atom("counter", name, ()))


def symbol(atom: Atom) -> Index:
    """Return the index that is this atom alone."""
    return Index((((atom,), 1),))


def var(name: str, extent: IndexLike) -> Index:
    """Return the loop variable of that name, running from 0 up to ``extent``."""
    return symbol(Atom("var", name, (as_index(extent),)))


def atom_of(index: Index) -> Atom | None:
    """Return the atom if the index is a single atom."""
    if len(index.terms) == 1 and index.terms[0][1] == 1 and len(index.terms[0][0]) == 1:
        return index.terms[0][0][0]
    return None


def extent(variable: Index) -> Index:
    """Return the extent of a loop variable."""
    atom = atom_of(variable)
    assert atom is not None and atom.kind == "var", variable
    return atom.args[0]


def product(sizes: Iterator[Index] | tuple[Index, ...] | list[Index]) -> Index:
    """Return product of sizes."""
    return math.prod(sizes, start=ONE)


# ---------------------------------------------------------------- bounds


def _upper(atom: Atom) -> Index | None:
    if atom.kind == "var":
        return atom.args[0] - 1
    if atom.kind == "mod":
        return atom.args[1] - 1
    if atom.kind == "floordiv" and (by := atom.args[1].constant):
        low = lower_bound(-atom.args[0])
        return const(-low // by) if low is not None else None
    return None


def _lowest(atom: Atom) -> int | None:
    if atom.kind == "number":
        return None
    if atom.kind == "size":
        return 1
    if atom.kind in ("counter", "var", "mod"):
        return 0
    if atom.kind == "floordiv":
        return 0 if is_at_least(atom.args[0], 0) else None
    known = [bound for arg in atom.args if (bound := lower_bound(arg)) is not None]
    if atom.kind == "max":
        return max(known, default=None)
    return min(known) if len(known) == len(atom.args) else None


@remembered
def lower_bound(index: Index) -> int | None:
    """Return an integer the index never falls below (sizes being positive), if one is found."""
    for _ in range(8):
        worst = next(
            (
                (monomial, k, atom)
                for monomial, k in index.terms
                if k < 0
                for atom in monomial
                if _upper(atom) is not None
            ),
            None,
        )
        if worst is None:
            break
        monomial, k, atom = worst
        top = _upper(atom)
        assert top is not None
        rest = list(monomial)
        rest.remove(atom)
        index = index - Index(((monomial, k),)) + Index(((tuple(rest), k),)) * top
    total = 0
    for monomial, k in index.terms:
        low = 1
        for atom in monomial:
            bound = _lowest(atom)
            if bound is None or bound < 0:
                return None
            low *= bound
        if k < 0 and monomial:
            return None
        total += k * low
    return total


def is_at_least(index: Index, bound: int) -> bool:
    """Return whether the index is known never to fall below ``bound``."""
    low = lower_bound(index)
    return low is not None and low >= bound


def is_less(left: Index, right: Index) -> bool:
    """Return whether ``left < right`` is known; ``x // c < y`` is as ``x < c * y``."""
    atom = atom_of(left)
    if atom is not None and atom.kind == "floordiv" and is_at_least(atom.args[1], 1):
        return is_less(atom.args[0], atom.args[1] * right)
    return is_at_least(right - left, 1)


def _divide(numerator: Index, denominator: Index) -> tuple[Index, Index]:
    """Polynomial division: ``numerator == quotient * denominator + rest``, exactly."""
    lead, lead_k = denominator.terms[0]
    quotient: dict[Monomial, int] = {}
    rest = numerator
    for _ in range(16):
        step = None
        for monomial, k in rest.terms:
            left = list(monomial)
            try:
                for atom in lead:
                    left.remove(atom)
            except ValueError:
                continue
            whole = k // lead_k
            if whole:
                step = Index(((tuple(left), whole),))
                break
        if step is None:
            break
        following = rest - step * denominator
        if len(following.terms) > len(rest.terms) and len(denominator.terms) > 1:
            break
        for monomial, k in step.terms:
            quotient[monomial] = quotient.get(monomial, 0) + k
        rest = following
    return _from_dict(quotient), rest


@remembered
def floordiv(a: Index, b: Index) -> Index:
    """``a // b`` for positive ``b``, as Python rounds."""
    x, y = a.constant, b.constant
    if x is not None and y is not None and y != 0:
        return const(x // y)
    if b is ONE or a is ZERO:
        return a
    if y == 0:
        return symbol(Atom("floordiv", "", (a, b)))
    quotient, rest = _divide(a, b)
    if rest is ZERO or (is_at_least(rest, 0) and is_less(rest, b)):
        return quotient
    inner = atom_of(rest)
    if inner is not None and inner.kind == "floordiv" and is_at_least(b, 1):
        return quotient + floordiv(inner.args[0], inner.args[1] * b)
    if inner is not None and inner.kind == "mod" and is_at_least(b, 1):
        outer, left = _divide(inner.args[1], b)
        if left is ZERO:
            return quotient + mod(floordiv(inner.args[0], b), outer)
    return quotient + symbol(Atom("floordiv", "", (rest, b)))


@remembered
def mod(a: Index, b: Index) -> Index:
    """``a % b`` for positive ``b``, as Python rounds."""
    x, y = a.constant, b.constant
    if x is not None and y is not None and y != 0:
        return const(x % y)
    if b is ONE:
        return ZERO
    if y == 0:
        return symbol(Atom("mod", "", (a, b)))
    _, rest = _divide(a, b)
    if rest is ZERO or (is_at_least(rest, 0) and is_less(rest, b)):
        return rest
    inner = atom_of(rest)
    if inner is not None and inner.kind == "mod" and _divide(inner.args[1], b)[1] is ZERO:
        return mod(inner.args[0], b)
    return symbol(Atom("mod", "", (rest, b)))


def minimum(a: Index, b: Index) -> Index:
    """Return the smaller of two."""
    if a is b or is_at_least(b - a, 0):
        return a
    if is_at_least(a - b, 0):
        return b
    return symbol(Atom("min", "", tuple(sorted((a, b), key=repr))))


def maximum(a: Index, b: Index) -> Index:
    """Return the larger of two."""
    if a is b or is_at_least(a - b, 0):
        return a
    if is_at_least(b - a, 0):
        return b
    return symbol(Atom("max", "", tuple(sorted((a, b), key=repr))))


def _recombine(index: Index) -> Index:
    """``c*(x//c) + x%c → x``, also times a common factor."""
    for monomial, k in index.terms:
        for atom in monomial:
            if atom.kind != "mod":
                continue
            x, c = atom.args
            others = list(monomial)
            others.remove(atom)
            factor = Index(((tuple(others), k),))
            whole = c * floordiv(x, c) * factor
            present = dict(index.terms)
            if whole.terms and all(present.get(m) == v for m, v in whole.terms):
                rest = _from_dict({m: v for m, v in index.terms if m not in dict(whole.terms)})
                return rest - Index(((monomial, k),)) + x * factor
    return index


def substitute(index: Index, values: Mapping[Atom, Index]) -> Index:
    """Replace sizes and variables, or quotients and remainders of these."""
    if index.atoms().isdisjoint(values) and all(atom.kind in NAMED for atom in values):
        return index
    return _substituted(index, tuple(values.items()))


@remembered
def _substituted(index: Index, items: tuple[tuple[Atom, Index], ...]) -> Index:
    values = dict(items)
    kept = tuple(term for term in index.terms if not _touches(term[0], values))
    total = Index(kept)
    for monomial, k in index.terms:
        if not _touches(monomial, values):
            continue
        fixed = tuple(atom for atom in monomial if not _touches((atom,), values))
        term = Index(((fixed, k),))
        for atom in monomial:
            if _touches((atom,), values):
                term = term * _substitute_atom(atom, values)
        total = total + term
    return total


def _touches(monomial: Monomial, values: Mapping[Atom, Index]) -> bool:
    """Return whether a substitution affects a product."""
    return any(
        atom in values
        or (atom.kind not in NAMED and any(not a.atoms().isdisjoint(values) for a in atom.args))
        for atom in monomial
    )


def _substitute_atom(atom: Atom, values: Mapping[Atom, Index]) -> Index:
    if atom in values:
        return values[atom]
    if atom.kind in NAMED:
        return symbol(atom)
    return COMBINE[atom.kind](*(substitute(arg, values) for arg in atom.args))


def regrouped(
    old: tuple[Index, ...], new: tuple[Index, ...], position: tuple[Index, ...]
) -> list[Index]:
    """Return the position in shape ``old`` of an element of shape ``new``, both row-major.

    The dimensions are first split into the smallest runs of equal product, so that the divisions
    that delinearize an index stay within one run.
    """
    result: list[Index] = [ZERO] * len(old)
    i = j = 0
    while i < len(old) and j < len(new):
        i_end, j_end = i + 1, j + 1
        left, right = old[i], new[j]
        while left is not right:
            if _grow_left(left, right) and i_end < len(old):
                left, i_end = left * old[i_end], i_end + 1
            elif j_end < len(new):
                right, j_end = right * new[j_end], j_end + 1
            elif i_end < len(old):
                left, i_end = left * old[i_end], i_end + 1
            else:
                break
        flat = ZERO
        for k in range(j, j_end):
            flat = flat * new[k] + position[k]
        for k in reversed(range(i, i_end)):
            result[k] = flat if k == i else flat % old[k]
            flat = flat // old[k]
        i, j = i_end, j_end
    return result


def _grow_left(left: Index, right: Index) -> bool:
    if left.constant is not None and right.constant is not None:
        return left.constant < right.constant
    return not is_at_least(left - right, 0)


def coefficient(index: Index, variable: Index) -> Index | None:
    """By how much the index grows a step of the variable; None if steps differ."""
    atom = atom_of(variable)
    if atom is None or atom not in index.atoms():
        return ZERO
    step = _slope(index, atom)
    if step is None:
        step = substitute(index, {atom: ONE}) - substitute(index, {atom: ZERO})
        if substitute(index, {atom: ZERO}) + step * variable is not index:
            return None
    return None if step.variables() else step


def _slope(index: Index, variable: Atom) -> Index | None:
    """What a variable is multiplied with; None where it is squared, or inside of a quotient."""
    found, nowhere_else = [], {variable: ZERO}
    for monomial, k in index.terms:
        rest = monomial
        if variable in monomial:
            at = monomial.index(variable)
            rest = (*monomial[:at], *monomial[at + 1 :])
            found.append((rest, k))
        if _touches(rest, nowhere_else):
            return None
    return _from_dict(dict(found))


COMBINE: Mapping[str, Callable[[Index, Index], Index]] = {
    "floordiv": floordiv,
    "mod": mod,
    "min": minimum,
    "max": maximum,
}


def evaluate(index: Index, values: Mapping[str, Any]) -> Any:
    """Return the value for given sizes and variables: ints, or tensors of ints."""
    total: Any = 0
    for monomial, k in index.terms:
        term: Any = k
        for atom in monomial:
            term = term * _evaluate_atom(atom, values)
        total = total + term
    return total


def _evaluate_atom(atom: Atom, values: Mapping[str, Any]) -> Any:
    if atom.kind in NAMED:
        return values[atom.name]
    a, b = (evaluate(arg, values) for arg in atom.args)
    if atom.kind == "floordiv":
        return a // b
    if atom.kind == "mod":
        return a % b
    return a + (b - a) * (b < a if atom.kind == "min" else b > a)


# ---------------------------------------------------------------- printing

AtomPrinter = Callable[[Atom], str]


def _atom_text(kind: str, name: str, args: tuple[Index, ...]) -> str:
    if kind in NAMED:
        return name
    if kind in ("min", "max"):
        return f"{kind}({args[0]}, {args[1]})"
    sign = "//" if kind == "floordiv" else "%"
    return f"({factor(args[0])} {sign} {factor(args[1])})"


def factor(index: Index, spell: AtomPrinter = _text) -> str:
    """Spell an index so that it can stand in a product."""
    text = render(index, spell)
    plain = len(index.terms) <= 1 and "*" not in text and not text.startswith("-")
    return text if plain else f"({text})"


def render(index: Index, spell: AtomPrinter = _text) -> str:
    """Spell an index as Python (or C, by another ``spell``)."""
    if not index.terms:
        return "0"
    text = ""
    for position, (monomial, k) in enumerate(index.terms):
        body = "*".join(spell(atom) for atom in monomial)
        if not body:
            body = str(abs(k))
        elif abs(k) != 1:
            body = f"{abs(k)}*{body}"
        if position:
            text += f" - {body}" if k < 0 else f" + {body}"
        else:
            text = f"-{body}" if k < 0 else body
    return text
