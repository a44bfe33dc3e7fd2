"""Functions split at every instruction and resumed there must do what they did before.

Runs without pytest too, so that `test_bytecode.py` can run it under other Pythons.
"""

import inspect
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any
from unittest import TestCase

from tc.compiler.capture.bytecode.assembler import assemble
from tc.compiler.capture.bytecode.emitter import Emitter
from tc.compiler.capture.bytecode.instructions import (
    Handler,
    Instruction,
    disassemble,
    stack_depths,
    stack_effect,
    successors,
)
from tc.compiler.capture.bytecode.liveness import live_at, writes
from tc.compiler.capture.bytecode.resume_functions import (
    STACK_PREFIX,
    cached_resume_code,
    resume_name,
    traced_name,
)

check = TestCase()
#: a table, and how many of its rows the usual run draws (see `drawn` in conftest.py)
Draw = Callable[[Iterable[Any], int], list[Any]]

# ---------------------------------------------------------------- the functions that are split

log: list[object] = []


class Manager:
    def __init__(self, name: str, swallow: bool = False) -> None:
        self.name, self.swallow = name, swallow

    def __enter__(self) -> str:
        log.append(("enter", self.name))
        return self.name

    def __exit__(self, kind: Any, error: Any, tb: Any) -> bool:
        log.append(("exit", self.name, kind))
        return self.swallow


def plain_code(a: int, b: int = 3, *rest: int, c: int = 5, **more: int) -> Any:
    d = a * b + c
    e = [d, *rest]
    f = {"d": d, **more}
    return f"{d:>4}{e!r}", f, d if a > 2 else -d, (a < b) is not (b < c), not rest


def loops(n: int) -> Any:
    total = 0
    for i in range(n):
        if i == 3:
            continue
        for j in range(i):
            total += i * j
            if total > 40:
                break
        else:
            total -= 1
    while total > 10:
        total -= 7
    else:
        log.append(total)
    return total, [m * m for m in range(5) if m % 2]


def managed(n: int) -> Any:
    out = []
    with Manager("a") as a, Manager("b", swallow=True) as b:
        out.append(a)
        if n == 1:
            raise KeyError("one")
        with Manager("c"):
            out.append(b)
            if n == 2:
                return out
        out.append("end")
    out.append("after")
    return out


def tries(n: int) -> Any:
    out: list[object] = []
    try:
        try:
            out.append(10 // n)
            if n == 2:
                raise KeyError(n)
            if n == 3:
                return out
        except ZeroDivisionError as error:
            out.append(str(error))
        else:
            out.append("else")
        finally:
            out.append("finally")
    except KeyError as error:
        try:
            raise ValueError("second") from error
        except ValueError as second:
            out.append(repr(second.__cause__))
        out.append(repr(sys.exc_info()[1]))
    out.append(sys.exc_info()[1])
    return out


def raises(n: int) -> Any:
    try:
        log.append(n)
        assert n, "zero"
        if n == 1:
            raise ValueError("one")
    finally:
        log.append("finally")
    return n


def closures(x: int, y: int) -> Any:
    z = x + 1

    def inner(k: int = z) -> int:
        nonlocal z
        z += k + x
        return z

    w = inner() + inner(y)
    x = w
    return w, z, inner(), (lambda: x)()


def unbound(n: int) -> Any:
    if n:
        value = n
    try:
        return value
    except UnboundLocalError:
        return "unbound"


def deleting(n: int) -> Any:
    a = b = n
    del a
    a = b + 1
    if n > 1:
        del b
    try:
        return a, b
    except UnboundLocalError as error:
        return type(error)


def matching(n: int) -> Any:
    subjects: list[object] = [1, (1, 2), [1, 2, 3], {"k": n}, "s", None]
    match subjects[n]:
        case int(x):
            out: object = ("int", x)
        case (a, b):
            out = ("pair", a, b)
        case [a, *others]:
            out = ("list", a, others)
        case {"k": v, **others}:
            out = ("dict", v, others)
        case None:
            out = "none"
        case _:
            out = "other"
    return out


def unpacking(n: int) -> Any:
    a, (b, *c), d = n, range(n + 2), [n]
    a, d = d, a
    x = y = c
    x[:1] = [a]
    return a, b, c, d, x is y, max(*c and [1, 2], n, key=lambda v: -v), print(*[], end="")


def comprehended(n: int) -> Any:
    k = n + 1
    rows = [(k, i) for i in range(n)]
    table = {j: [k + j for k in range(j)] for j in range(n)}
    adders = [lambda v: v + i for i in range(n)]  # noqa: B023
    return rows, table, [add(k) for add in adders], k


class Base:
    def method(self, n: int) -> Any:
        return "base", n


class Derived(Base):
    def method(self, n: int) -> Any:
        log.append(n)
        got = super().method(n + 1)
        parent = super()
        return got, parent.method(n), __class__  # type: ignore[name-defined]


CASES: list[tuple[Callable[..., Any], list[tuple[Any, ...]]]] = [
    (plain_code, [(1,), (4, 2, 7, 8)]),
    (loops, [(0,), (5,)]),
    (managed, [(0,), (1,), (2,)]),
    (tries, [(0,), (1,), (2,), (3,)]),
    (raises, [(0,), (1,), (2,)]),
    (closures, [(1, 2)]),
    (unbound, [(0,), (1,)]),
    (deleting, [(1,), (2,)]),
    (matching, [(n,) for n in range(6)]),
    (unpacking, [(1,), (3,)]),
    (comprehended, [(0,), (3,)]),
    (Derived.method, [(Derived(), 1)]),
]

# ---------------------------------------------------------------- splitting

State = tuple[bool | None, ...]  # True: a value, False: NULL, None: perhaps NULL


def stack_states(body: list[Instruction], args: list[str]) -> dict[Instruction, State]:
    """What lies on the stack at each instruction, as far as this simple walk knows it."""
    depths = stack_depths(body)
    states: dict[Instruction, State] = {body[0]: ()}
    for one, following in pairwise(body):
        for jump, to in ((True, one.target), (False, following)):
            if to is None or one not in states or to not in depths or to in states:
                continue
            if to is following and depths[one] + stack_effect(one, jump=jump) != depths[to]:
                continue
            states[to] = _pushed(one, states[one], depths[to], args)
        if one.handler is not None and one in states:
            handler = one.handler
            kept = states[one][: handler.depth]
            states.setdefault(handler.target, kept + (True,) * (1 + handler.lasti))
    return states


def _pushed(one: Instruction, state: State, depth: int, args: list[str]) -> State:
    pushed: State = (True,) * max(0, depth - len(state))
    if one.opname == "PUSH_NULL":
        pushed = (False,)
    elif one.opname == "LOAD_GLOBAL" and (one.arg or 0) & 1:
        pushed = (True, False) if sys.version_info >= (3, 13) else (False, True)
    elif one.opname in ("LOAD_METHOD", "LOAD_FAST_AND_CLEAR"):
        return (*state[: depth - 2], *(None, None)[:depth])
    elif one.opname in ("LOAD_ATTR", "LOAD_SUPER_ATTR"):
        if sys.version_info >= (3, 12) and (one.arg or 0) & 1:
            return (*state[: depth - 2], None, None)
        return (*state[: depth - 1], True)
    elif one.opname == "SWAP":
        swapped = list(state)
        swapped[-1], swapped[-(one.arg or 1)] = swapped[-(one.arg or 1)], swapped[-1]
        return tuple(swapped)
    elif one.opname.startswith("CALL"):
        return (*state[: depth - 1], True)
    return (state + pushed)[:depth]


TAKES = frozenset({"DELETE_FAST", "LOAD_FAST_AND_CLEAR"})
SHUFFLES = frozenset({"SWAP", "POP_TOP", "END_FOR", "NOP"})


def assigned_before(
    instructions: Sequence[Instruction], target: Instruction, args: Iterable[str] = ()
) -> set[str]:
    """Return the locals that surely have a value on every way to `target`, given `args`.

    From Python 3.12 on, a local that a comprehension borrows is given back as it was, perhaps
    without a value; it counts again after its next assignment.

    Raises:
        ValueError: no way leads to `target`.
    """
    doubtful = given_back(instructions)
    after = successors(instructions)
    bound: dict[Instruction, set[str]] = {instructions[0]: set(args)}
    todo = [instructions[0]]
    while todo:
        one = todo.pop()
        entry = bound[one]
        leaving = entry - set(writes(one))
        if one not in doubtful and one.opname not in TAKES:
            leaving = leaving.union(writes(one))
        for following in after(one):
            # A handler may be entered before or after the instruction took effect.
            caught = one.handler is not None and following is one.handler.target
            state = entry & leaving if caught else leaving
            known = bound.get(following)
            merged = state if known is None else known & state
            if merged != known:
                bound[following] = merged
                todo.append(following)
    if target not in bound:
        raise ValueError(f"{target}: no way leads there")
    return bound[target]


def given_back(instructions: Sequence[Instruction]) -> set[Instruction]:
    """Return the stores to borrowed locals that may put back "no value".

    These are all but those where the instruction before has plainly just made the value.
    """
    borrowed = {one.argval for one in instructions if one.opname == "LOAD_FAST_AND_CLEAR"}
    found: set[Instruction] = set()
    for previous, one in pairwise(instructions):
        opname = previous.opname
        jumps = previous.target is not None and opname != "FOR_ITER"
        unclear = jumps or opname in SHUFFLES or opname.startswith("STORE_")
        if unclear and borrowed.intersection(writes(one)):
            found.add(one)
    return found


def redirect(body: list[Instruction], old: Instruction, new: Instruction) -> None:
    """Redirect jumps and handlers from one instruction to another."""
    for one in body:
        if one.target is old:
            one.target = new
        if one.handler is not None and one.handler.target is old:
            one.handler = Handler(new, one.handler.depth, one.handler.lasti)


def split(code: CodeType, target: Instruction, body: list[Instruction]) -> CodeType | None:
    """Return `code` cut in two at `target`, or None where this test does not know the state."""
    before = body[body.index(target) - 1]
    if target.opname in ("END_FOR", "CALL") or before.opname in ("END_FOR", "KW_NAMES"):
        return None  # amid what the interpreter runs as one
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    args = list(code.co_varnames[:count])
    cells = {*code.co_cellvars, *code.co_freevars}
    state = stack_states(body, args).get(target)
    bound = assigned_before(body, target, args)
    live = live_at(body, target, frame_locals=bound) - cells
    borrowed = {one.argval for one in body if one.opname == "LOAD_FAST_AND_CLEAR"}
    live -= (
        borrowed - bound - {"k"}
    )  # in these functions, only a `k` is ever borrowed when it has a value
    if state is None or None in state or not live <= bound or STACK_PREFIX in "".join(live):
        return None
    names = sorted(live)
    offset = target.offset
    assert offset is not None
    rest = cached_resume_code(code, offset, tuple(bool(s) for s in state), tuple(names))
    emitter = Emitter(target.positions)
    first = emitter.emit("NOP")
    emitter.before_callable()
    emitter.make_function(rest, rest.co_freevars)
    emitter.after_callable()
    for position, present in enumerate(state):
        if present:
            # Two values lie above the old stack (callable and NULL), then what was copied.
            copied = sum(map(bool, state[:position]))
            emitter.copy(len(state) - position + 2 + copied)
    for name in names:
        emitter.load_fast(name)
    emitter.call(sum(map(bool, state)) + len(names))
    emitter.return_value()
    redirect(body, target, first)
    at = body.index(target)
    body[at:at] = emitter.instructions
    return assemble(body, code)


def splits(code: CodeType, step: int = 1) -> Iterator[tuple[int, CodeType]]:
    whole = disassemble(code)
    reached = stack_depths(whole)
    first = [one.opname for one in whole].index("RESUME") + 1
    for i in range(first, len(whole), step):
        if whole[i] in reached:
            body = disassemble(code)  # a cut is made in place
            done = split(code, body[i], body)
            if done is not None:
                yield i, done


def outcome(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    log.clear()
    try:
        result: object = function(*args)
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)]
        result = (type(error), str(error), lines[-1])
    return repr(result), repr(log)


def remade(function: Any, code: CodeType) -> FunctionType:
    new = FunctionType(code, function.__globals__, "f", function.__defaults__, function.__closure__)
    new.__kwdefaults__ = function.__kwdefaults__
    return new


def nested_resumes(code: CodeType) -> Iterator[tuple[CodeType, int]]:
    for i, constant in enumerate(code.co_consts):
        if isinstance(constant, CodeType) and traced_name(constant).startswith(
            "torch_dynamo_resume"
        ):
            yield constant, i


def test_every_split_behaves_like_the_whole(drawn: Draw) -> None:
    for function, inputs in drawn(CASES, 6):
        expected = [outcome(function, args) for args in inputs]
        count = 0
        for i, code in splits(function.__code__):
            cut = remade(function, code)
            got = [outcome(cut, args) for args in inputs]
            check.assertEqual(got, expected, f"{function.__name__} split at instruction {i}")
            count += 1
        check.assertGreater(count, 5, function.__name__)


def test_resumes_can_be_split_again(drawn: Draw) -> None:
    for function, inputs in drawn(CASES, 5):
        expected = [outcome(function, args) for args in inputs]
        for i, code in splits(function.__code__, step=7):
            for rest, where in nested_resumes(code):
                for j, again in splits(rest, step=5):
                    consts = list(code.co_consts)
                    consts[where] = again
                    cut = remade(function, code.replace(co_consts=tuple(consts)))
                    got = [outcome(cut, args) for args in inputs]
                    check.assertEqual(got, expected, f"{function.__name__} split at {i}, {j}")


# ---------------------------------------------------------------- the contract in particular


def offset_of(code: CodeType, opname: str, argval: object = None) -> int:
    for one in disassemble(code):
        if one.opname == opname and argval in (None, one.argval):
            assert one.offset is not None
            return one.offset
    raise AssertionError(f"no {opname}")


def test_parameters_names_and_places() -> None:
    def original(a: int, b: int) -> int:
        c = a + b
        return c * b

    code = original.__code__
    offset = (
        offset_of(code, "LOAD_FAST", "c")
        if sys.version_info < (3, 13)
        else offset_of(code, "LOAD_FAST_LOAD_FAST", ("c", "b"))
    )
    rest = cached_resume_code(code, offset, (True, False, True), ("b", "c"))
    check.assertEqual(rest.co_varnames[:4], ("___stack0", "___stack1", "b", "c"))
    check.assertEqual(rest.co_argcount, 4)
    name = f"torch_dynamo_resume_in_original_at_{code.co_firstlineno + 2}"
    check.assertEqual((rest.co_name, traced_name(rest)), ("original", name))
    check.assertTrue(rest.co_qualname.endswith("<locals>." + name))
    check.assertEqual(rest.co_filename, code.co_filename)
    check.assertEqual(rest.co_firstlineno, code.co_firstlineno)
    check.assertEqual(FunctionType(rest, {})(None, None, 5, 7), 35)
    again = disassemble(rest)[-1].offset
    assert again is not None
    check.assertEqual(resume_name(rest, again), name)


def test_prologues_do_not_pile_up() -> None:
    code = loops.__code__
    sizes = []
    for _ in range(4):
        offset = offset_of(code, "LOAD_CONST", 10)
        code = cached_resume_code(code, offset, (True,), ("n", "total"))
        sizes.append(len(disassemble(code)))
    check.assertEqual(sizes, sizes[:1] * 4)
    check.assertEqual(FunctionType(code, globals())(20, 4, 20)[0], 6)


def test_stack_values_are_not_kept_alive() -> None:
    import weakref

    if "torch" in sys.modules:  # its frame hook makes callers keep arguments: ask a bare Python
        name = "test_stack_values_are_not_kept_alive"
        run = f"import runpy; runpy.run_path({__file__!r})[{name!r}]()"
        assert run not in sys.orig_argv, "what works on bytecode imports torch"
        root = Path(__file__).parents[4]
        subprocess.run([sys.executable, "-c", run], check=True, cwd=root)
        return

    class Thing:
        pass

    seen: list[bool] = []

    def original(make: Any, look: Any) -> None:
        make()
        look()

    code = original.__code__
    offset = offset_of(code, "POP_TOP")
    rest = FunctionType(cached_resume_code(code, offset, (True,), ("look",)), globals())
    things = [Thing()]
    ref = weakref.ref(things[0])
    rest(things.pop(), lambda: seen.append(ref() is None))
    check.assertEqual(seen, [True])


def test_what_cannot_be_resumed_is_refused() -> None:
    def generator() -> Any:
        yield 1

    async def coroutine() -> None:
        pass

    for function in (generator, coroutine):
        with check.assertRaisesRegex(ValueError, "generator or coroutine"):
            cached_resume_code(function.__code__, 0, (), ())  # type: ignore[attr-defined]
    with check.assertRaisesRegex(ValueError, "no instruction starts at offset 1"):
        cached_resume_code(loops.__code__, 1, (), ())
    with check.assertRaisesRegex(ValueError, "'x' is a cell"):
        cached_resume_code(closures.__code__, 0, (), ("x",))
    with check.assertRaisesRegex(ValueError, "reserved for stack values"):
        cached_resume_code(loops.__code__, 0, (), ("___stack0",))


def test_resuming_at_the_start_is_the_whole() -> None:
    rest = FunctionType(cached_resume_code(loops.__code__, 0, (), ("n",)), globals())
    check.assertEqual(rest(5), loops(5))
