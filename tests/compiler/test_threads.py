"""Threads: calls and compiles in any number of them, forks, Ctrl-C, resets."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from support import python

import tc
from tc.compiler.capture import entries, hook
from tc.compiler.capture.guards import guard_list, tree
from tc.compiler.capture.guards.fast_path import install_entry
from tc.compiler.core import lock, once
from tc.compiler.deferred import Deferred, Work
from tc.compiler.process import PROCESS

PATIENCE = 200.0  # seconds; nothing here takes long, but machines are shared


@pytest.fixture(autouse=True)
def fresh():
    tc.reset()
    switch, wait = sys.getswitchinterval(), tc.config.compile_wait
    yield
    sys.setswitchinterval(switch)
    tc.config.compile_wait = wait
    tc.reset()


def together(*works):
    """Run functions in threads of their own that start at one time; return their results."""
    start = threading.Barrier(len(works))

    def begin(work):
        start.wait(PATIENCE)
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        futures = [pool.submit(begin, work) for work in works]
        return [future.result(PATIENCE) for future in futures]


def affine(x, w):
    return (x * w).sum(-1) + x.shape[0]


def given(n, **how):
    return torch.arange(4.0 * n).view(n, 4).requires_grad_(**how), torch.ones(4)


def fast_path_of(compiled):
    """Return the fast path of a compiled function."""
    cells = [cell.cell_contents for cell in compiled.__closure__]
    return next(one for one in cells if type(one).__name__ == "FastPath")


# -- the two failures that were known ----------------------------------------------------------


def test_threads_that_compile_for_sizes_of_their_own_get_results_of_their_own():
    f = tc.compile(affine, dynamic=False)
    sizes = (3, 5, 7, 9)
    with torch.no_grad():
        for n in sizes:
            f(*given(n))

    def calls(n):
        x, w = given(n)
        return sum(not torch.equal(f(x, w), affine(x, w)) for _ in range(25))

    assert together(*(lambda n=n: calls(n) for n in sizes)) == [0] * 4


def for_one_size(gm, inputs):
    """A backend whose code is right for the size it was compiled for, and no other."""
    n = inputs[0].shape[0]
    time.sleep(0.01)  # as compilers do
    return lambda *args: (torch.full((n,), float(n)),)


def test_eight_threads_without_dynamic_sizes():
    with tc.config.patch(recompile_limit=16):
        f = tc.compile(lambda x: x * 0 + x.shape[0], dynamic=False, backend=for_one_size)

        compiled = threading.Barrier(8)

        def wrong(n):
            x = torch.arange(float(n))
            first = f(x)
            compiled.wait(PATIENCE)
            results = [first, *(f(x) for _ in range(5))]
            return sum(not r.equal(torch.full((n,), float(n))) for r in results)

        assert together(*(lambda n=n: wrong(n) for n in range(2, 10))) == [0] * 8


# -- one compile for all -------------------------------------------------------------------------


class Counting:
    """A backend that counts, and takes its time."""

    def __init__(self, seconds=0.02, first=lambda: None):
        self.seconds, self.graphs, self.first = seconds, 0, first

    def __call__(self, gm, inputs):
        self.graphs += 1
        if self.graphs == 1:
            self.first()
        time.sleep(self.seconds)
        return gm.forward


def test_threads_that_call_a_function_first_compile_it_once():
    backend = Counting()
    f = tc.compile(lambda x: x + 1, backend=backend)
    results = together(*[lambda: f(torch.zeros(3))] * 6)
    assert all(r.equal(torch.ones(3)) for r in results) and backend.graphs == 1


def test_what_is_compiled_meanwhile_is_found_however_c_missed_it():
    target = affine.__code__
    f = tc.compile(affine, backend=(backend := Counting(0)))
    f(*given(3))
    (entry,) = hook.cache_entries(target)
    compiler = next(c.cell_contents for c in f.__closure__ if hasattr(c.cell_contents, "owner"))
    state = {"tc": hook.state_of(target)}
    x, w = given(3)

    class Offered:
        f_code, f_locals, f_globals = target, {"x": x, "w": w}, affine.__globals__
        f_builtins, closure = {}, ()

    answer = compiler(Offered, None, state)
    assert answer.guarded_code.code is entry.code and backend.graphs == 1
    assert answer.guarded_code.guard_manager.root is None, "never found by another call"
    assert f(x, w).equal(affine(x, w)) and backend.graphs == 1


def test_two_functions_at_once():
    one, two = (tc.compile(lambda x, k=k: x * k, backend=Counting()) for k in (2, 3))
    a, b = together(lambda: one(torch.ones(2)), lambda: two(torch.ones(2)))
    assert a.tolist() == [2, 2] and b.tolist() == [3, 3]


def test_backward_is_compiled_once_in_whatever_threads():
    x, w = given(3)
    w.requires_grad_()
    made = []

    def backward(gm, inputs):
        made.append(gm)
        time.sleep(0.02)
        return gm.forward

    f = tc.compile(affine, backend=tc.aot_backend(lambda gm, inputs: gm.forward, backward))
    outs = [f(x, w).sum() for _ in range(4)]
    found = together(*(lambda o=o: torch.autograd.grad(o, w)[0] for o in outs))
    assert all(g.equal(x.sum(0)) for g in found) and len(made) == 1


# -- no deadlock ---------------------------------------------------------------------------------


def test_a_backend_that_waits_for_a_thread_that_compiles():
    """The other thread gives up waiting, and runs its function as Python."""
    tc.config.compile_wait = 0.1
    g = tc.compile(lambda x: x * 5, backend=Counting(0))
    got = []

    def ask():
        got.append(together(lambda: [g(torch.ones(2)) for _ in range(20)])[0])

    f = tc.compile(lambda x: x + 1, backend=Counting(0, first=ask))
    began = time.monotonic()
    assert f(torch.ones(2)).tolist() == [2, 2]
    assert [r.tolist() for r in got[0]] == [[5, 5]] * 20
    assert time.monotonic() - began < 10, "it waits for one compile once, not at every call"
    assert g(torch.ones(2)).tolist() == [5, 5] and PROCESS.graphs == 2, "compiled after all"


def test_a_backward_that_cannot_be_compiled_now_runs_by_operations():
    tc.config.compile_wait = 0.1
    deferred = Deferred(Work(lambda: lambda args: ("compiled",), lambda args: ("instead",), None))
    assert lock.alone(lambda: together(lambda: deferred([]))[0], None) == ("instead",)


def test_code_of_the_user_runs_without_the_lock():
    """What stops capture runs for real, after the compile: it may wait for threads that compile."""
    g = tc.compile(lambda x: x * 5, backend="eager")
    owned = []

    @tc.disable
    def meet(x):
        owned.append(lock._LOCK.owned())
        return together(lambda: g(x), lambda: g(x))[0]

    f = tc.compile(lambda x: meet(x + 1) + 1, backend="eager")
    assert f(torch.ones(2)).tolist() == [11, 11] and owned == [False]


def test_waiting_goes_on_while_compiles_do():
    """Who waits for many compiles, each of which is fast enough, does not give up."""
    tc.config.compile_wait = 0.5
    works = [lambda: lock.alone(lambda: time.sleep(0.15), lambda: "gave up")] * 6
    assert together(*works) == [None] * 6


# -- Ctrl-C --------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_ctrl_c_in_a_compile_leaves_nothing_behind(error):
    def interrupt():
        raise error

    f = tc.compile(affine, backend=tc.aot_backend(Counting(0, first=interrupt)))
    x, w = given(3)
    before = set(globals())
    with pytest.raises(BaseException) as raised:
        f(x, w)
    assert error.__name__ in f"{raised.type.__name__} {raised.value}"
    assert not lock._LOCK.owned() and gc.isenabled() and not hook.active()
    assert {n for n in globals() if n.startswith("__compiled_fn")} <= before
    assert f(x, w).equal(affine(x, w))
    assert together(lambda: f(x, w).equal(affine(x, w))) == [True]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_ctrl_c_at_any_time():
    """A real signal, after more and more of a compile and a call."""
    program = """
import gc, signal, threading, time, torch, tc
from tc.compiler.capture import hook
from tc.compiler.core import lock
def stop(*_): raise KeyboardInterrupt
signal.signal(signal.SIGALRM, stop)
x = torch.arange(6.0, requires_grad=True)
TRIES, took, stopped = 15, [], 0
for k in range(-4, TRIES):
    def f(x, k=k): return (x * k).sin().sum()
    compiled = tc.compile(f, backend="aot_eager")
    began = time.perf_counter()
    try:
        if k >= 0:  # the first ones import what a compile needs, and show how long one takes
            signal.setitimer(signal.ITIMER_REAL, min(took) * (k + 0.5) / TRIES)
        compiled(x)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        stopped += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    took += [time.perf_counter() - began] if k < 0 else []
    assert not lock._LOCK.owned() and not hook.active() and gc.isenabled(), k
    assert torch.allclose(compiled(x), f(x)), k
    results = []
    t = threading.Thread(target=lambda: results.append(torch.allclose(compiled(x), f(x))))
    t.start(); t.join(30)
    assert results == [True], k
print("stopped", stopped)
"""
    done = python("-c", program, warm=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 3


def test_an_answer_that_c_never_got_is_forgotten():
    """Ctrl-C between the end of a compile and C: the next call compiles again."""
    f = tc.compile(affine, backend=(backend := Counting(0)))
    x, w = given(3)
    with pytest.MonkeyPatch.context() as patch:
        made = hook._result_for_c

        def stop(outcome, *rest):
            answer = made(outcome, *rest)
            if answer.guarded_code is not None:
                own = hook.state_of(affine.__code__)
                own.pending = (entries.Pending(None, answer.guarded_code), *own.pending)
                raise KeyboardInterrupt
            return answer

        patch.setattr(hook, "_result_for_c", stop)
        with pytest.raises(KeyboardInterrupt):
            f(x, w)
    for _ in range(3):
        assert f(x, w).equal(affine(x, w))
    assert backend.graphs == 2 and len(hook.cache_entries(affine.__code__)) == 1
    assert hook.state_of(affine.__code__).spent == ()


# -- entries that end --------------------------------------------------------------------------


@pytest.mark.usefixtures("only_new_garbage")
def test_an_entry_that_ends_in_the_middle_of_its_check():
    """Its guard tree lives on until no thread is inside; the call compiles again or ends."""
    alive, hits = [], []

    def target(x):
        return x + 1

    def answer(frame, cache, state):
        checked = guard_list.build(
            guard_list.GuardList(), None, frame.code, frame.locals, {}, "0/0"
        )

        def look(value):
            hits.append(value)
            if len(hits) == 2:
                alive.append(weakref.ref(checked.root))
                together(checked.drop)
                gc.collect()
            return True

        checked.root.add_epilogue_lambda_guard(look, ["look"], *tree._STACK)
        return hook.Compiled(target.__code__, checked, "0/0")

    run = hook.wrap(target, answer)
    assert [run(1) for _ in range(4)] == [2] * 4
    assert len(hits) >= 2 and alive, "the check was under way as the entry ended"


def test_nobody_is_inside_where_no_call_is_under_way():
    assert entries.nobody_inside()
    seen = []

    @tc.disable
    def look():
        seen.append(entries.nobody_inside())

    f = tc.compile(lambda x: (look(), x + 1)[1], backend="eager")
    f(torch.ones(1))
    assert seen == [False] and entries.nobody_inside()


def test_reset_stance_and_config_while_others_call():
    f = tc.compile(affine, backend="aot_eager", dynamic=False)
    ended = threading.Event()
    sys.setswitchinterval(1e-6)

    def calls(n):
        x, w = given(n)
        expected, wrong = affine(x, w), 0
        while not ended.is_set():
            wrong += not f(x, w).equal(expected)
        return wrong

    def changes():
        try:
            for turn in range(12):
                tc.reset()
                with tc.set_stance("force_eager" if turn % 2 else "eager_then_compile"):
                    time.sleep(0.005)
                with tc.config.patch(recompile_limit=2 + turn % 3):
                    time.sleep(0.005)
        finally:
            ended.set()
        return 0

    assert together(lambda: calls(3), lambda: calls(4), changes) == [0, 0, 0]


def test_ids_that_are_given_out_again_name_another_graph():
    """Code that still runs as everything is forgotten continues with its own graph."""

    def other(x):
        return x * 100

    f = tc.compile(lambda x: x + 1, backend="eager")
    f(torch.ones(1))
    code = hook.cache_entries(f.__wrapped__.__code__)[0].code
    tc.reset()
    g = tc.compile(other, backend="eager")
    assert g(torch.ones(1)).item() == 100
    held = type(f)(code, globals(), "held", None, f.__wrapped__.__closure__)
    assert held(torch.ones(1)).item() == 2, "not the graph of `other`, which got the same id"


def test_a_fast_path_stays_removed_when_all_are_removed_meanwhile():
    f = tc.compile(affine)
    x, w = given(3)
    for _ in range(3):
        f(x, w)
    fast_path = fast_path_of(f)
    wrapped = f.__wrapped__
    found = list(hook.cache_entries(wrapped.__code__))

    def closing():
        found[0].guards.drop()  # as another thread might, just now
        return found

    assert not install_entry(PROCESS.gate, fast_path, wrapped, closing, (x, w))
    assert fast_path.entries == 0


# -- processes ---------------------------------------------------------------------------------


FORKING = """
import os, sys, threading, time, torch, tc
torch.set_num_threads(1)
def f(x): return (x * 2).sin().sum() + x.shape[0]
def kw(x=None): return x * 3 + 1
g, h = tc.compile(f, backend="aot_eager"), tc.compile(kw, backend="aot_eager")
x = torch.arange(12.0)
g(x); h(x=x)
ended = []
def calls():
    while not ended:
        h(x=x)
def compiles():
    k = 0
    while not ended:
        k += 1
        tc.compile(lambda x, k=k: x + k, backend="aot_eager")(x)
failed = []
for targets in ([], [calls, calls], [compiles], [calls, compiles]):
    ended.clear()
    threads = [threading.Thread(target=t) for t in targets]
    for t in threads: t.start()
    for n in range(int(sys.argv[1])):
        time.sleep(0.01)
        pid = os.fork()
        if pid == 0:
            import gc, faulthandler
            faulthandler.dump_traceback_later(20, exit=True)
            good = g(x).equal(f(x)) and h(x=x).equal(kw(x=x)) and gc.isenabled()
            good = good and tc.compile(lambda x: x - 7, backend="aot_eager")(x).equal(x - 7)
            os._exit(0 if good else 3)
        if os.waitpid(pid, 0)[1]: failed.append((targets, n))
    ended.append(1)
    for t in threads: t.join()
print("failed", failed)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("forks", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_forks_after_and_in_the_middle_of_compiles_and_calls(forks):
    done = python("-c", FORKING, str(forks), warm=True)
    assert done.returncode == 0 and done.stdout.endswith("failed []\n"), done.stderr + done.stdout


class Squares(torch.utils.data.Dataset):
    """Data made by a compiled function."""

    def __init__(self):
        self.f = tc.compile(lambda x: x * x + 1, backend="aot_eager")

    def __len__(self):
        return 8

    def __getitem__(self, k):
        return self.f(torch.full((3,), float(k)))


def test_workers_of_a_data_loader():
    data = Squares()
    assert data[2].tolist() == [5, 5, 5]
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2)
    found = torch.cat(list(loader))
    assert found[:, 0].tolist() == [k * k + 1.0 for k in range(8)]


@pytest.mark.slow
def test_two_processes_with_one_cache(tmp_path):
    program = """
import torch, tc
f = tc.compile(lambda x: (x * 2).sin() + 3)
x = torch.arange(3.0, requires_grad=True)
f(x).sum().backward()
assert torch.allclose(x.grad, 2 * (x * 2).cos())
"""
    run = lambda: python("-c", program, variables={"TC_CACHE_DIR": str(tmp_path)})  # noqa: E731
    assert [done.stderr for done in together(run, run) if done.returncode] == []


def test_tasks_of_asyncio_share_a_thread():
    f = tc.compile(affine, backend="aot_eager", dynamic=False)

    async def one(n):
        x, w = given(n)
        found = []
        for _ in range(3):
            found.append(f(x, w).equal(affine(x, w)))
            await asyncio.sleep(0)
            found.append((await asyncio.to_thread(f, x, w)).equal(affine(x, w)))
        return all(found)

    async def all_of_them():
        return await asyncio.gather(*map(one, (2, 3, 4)))

    assert asyncio.run(all_of_them()) == [True] * 3


# -- parts -------------------------------------------------------------------------------------


def test_once_is_once():
    made = []

    @once.once
    def make(name):
        time.sleep(0.02)
        made.append(name)
        return object()

    assert len(set(together(*[lambda: make("a")] * 5))) == 1 and made == ["a"]
    assert make("b") is not make("a")


def test_the_lock_is_given_back_by_whoever_has_it():
    def fails():
        raise ValueError

    for work in (fails, lambda: lock.alone(fails, None)):
        with pytest.raises(ValueError):
            lock.alone(work, None)
        assert not lock._LOCK.owned()
    assert lock.alone(lambda: lock.alone(lock._LOCK.owned, None), None) is True
