"""The frame hook: what callbacks see, what runs, what is cached, what errors do."""

import functools
import threading
import types

import pytest
from support import python

from tc.compiler.capture import hook
from tc.compiler.capture.guards import guard_list
from tc.compiler.core.sources import LocalSource
from tc.compiler.errors import StageError


class Recorder:
    """A frame callback that answers by function name and notes what it was offered."""

    def __init__(self, **answers):
        self.answers = answers
        self.offered = []

    def __call__(self, frame, cache, state):
        self.offered.append(frame.code.co_name)
        answer = self.answers.get(frame.code.co_name, hook.Skip("not asked for"))
        return answer(frame, cache, state) if callable(answer) else answer


def constant_code(code, value):
    """Return code like ``code`` that returns ``value``."""
    namespace = {}
    names = ", ".join(code.co_varnames[: code.co_argcount])
    exec(f"def {code.co_name}({names}): return {value!r}", namespace)
    return namespace[code.co_name].__code__


def compiled(value, *kinds):
    """Answer with code that returns ``value``, guarded on argument ``x`` by these kinds."""

    def answer(frame, cache, state):
        wanted = guard_list.GuardList()
        for kind in kinds:
            wanted.add(kind, LocalSource("x"), frame.locals["x"])
        checked = guard_list.build(wanted, None, frame.code, frame.locals, frame.globals, "0/0")
        result = value(frame) if callable(value) else value
        return hook.Compiled(constant_code(frame.code, result), checked, f"0/{len(cache)}")

    return answer


def make(body="return x"):
    namespace = {}
    exec(f"def target(x):\n    {body}\ndef helper(x):\n    return x + 1", namespace)
    return namespace["target"], namespace["helper"]


def test_runs_compiled_code_while_guards_hold_and_recompiles_when_not():
    target, _ = make()
    record = Recorder(target=compiled(lambda frame: frame.locals["x"] * 100, "EQUALS"))
    run = hook.wrap(target, record)
    assert [run(1), run(1), run(2), run(1)] == [100, 100, 200, 100]
    assert record.offered == ["target", "target"]
    entries = hook.cache_entries(target.__code__, record)
    assert [entry.compile_id for entry in entries] == ["0/0", "0/1"]  # last used first
    assert entries[0].guards.check({"x": 1}) and not entries[0].guards.check({"x": 2})
    assert target(5) == 5, "outside the wrapper the function is its own"


def test_callback_sees_the_frame():
    seen = []

    def outer(cell):
        def inner(x, *rest, key=3):
            return cell, x, rest, key

        return inner

    def look(frame, cache, state):
        seen.append((frame, len(cache), list(cache), dict(state)))
        state["calls"] = state.get("calls", 0) + 1
        return hook.RunOnce()

    run = hook.wrap(outer("c"), look)
    assert run(1, 2) == ("c", 1, (2,), 3)
    assert run(1, 2) == ("c", 1, (2,), 3)
    frame, count, entries, state = seen[0]
    assert frame.locals == {"cell": "c", "x": 1, "rest": (2,), "key": 3}
    assert frame.globals is globals() and "len" in frame.builtins
    assert [cell.cell_contents for cell in frame.closure] == ["c"]
    assert (count, entries, state) == (0, [], {})
    assert seen[1][3] == {"calls": 1}


def test_skip_is_for_good_and_run_once_is_not():
    target, _ = make("return helper(x)")
    record = Recorder(target=hook.RunOnce(), helper=hook.Skip("said no"))
    run = hook.wrap(target, record)
    assert run(1) == run(1) == 2
    assert record.offered == ["target", "helper", "target"]


def test_recursive_skip_hides_callees():
    target, _ = make("return helper(x)")
    record = Recorder(target=hook.Skip("all of it", recursive=True))
    run = hook.wrap(target, record)
    assert run(1) == run(1) == 2
    assert record.offered == ["target"]


def test_compiled_code_offers_what_it_calls():
    target, _ = make("return helper(x)")

    def answer(frame, cache, state):
        checked = guard_list.build(
            guard_list.GuardList(), None, frame.code, frame.locals, {}, "0/0"
        )
        return hook.Compiled(frame.code.replace(co_name="again"), checked, "0/0")

    record = Recorder(target=answer, helper=hook.RunOnce())
    assert hook.wrap(target, record)(1) == 2
    assert record.offered == ["target", "helper"]


def test_callback_errors_reach_the_caller_and_the_hook_is_restored():
    target, _ = make()

    def fail(frame, cache, state):
        raise KeyError("from the compiler")

    with pytest.raises(KeyError, match="from the compiler"):
        hook.wrap(target, fail)(1)
    assert not hook.active()
    assert target(3) == 3


def test_user_errors_restore_the_hook():
    target, _ = make("return 1 // x")
    with pytest.raises(ZeroDivisionError):
        hook.wrap(target, Recorder())(0)
    assert not hook.active()


def test_nothing_is_offered_while_the_callback_runs():
    target, helper = make()
    record = Recorder(target=lambda *_: (helper(1), hook.Skip("done"))[1])
    hook.wrap(target, record)(1)
    assert record.offered == ["target"]


def test_nested_wrappers_use_their_own_callback():
    target, _ = make("return inner(x) + helper(x)")
    inner_record, outer_record = Recorder(), Recorder(target=hook.RunOnce())
    target.__globals__["inner"] = hook.wrap(make()[0], inner_record)
    assert hook.wrap(target, outer_record)(1) == 3
    assert inner_record.offered == ["target"]
    assert outer_record.offered == ["target", "helper"], "wrappers themselves are not offered"


def test_recursion():
    target, _ = make("return 0 if x == 0 else x + target(x - 1)")
    record = Recorder(target=hook.RunOnce())
    assert hook.wrap(target, record)(3) == 6
    assert record.offered == ["target"] * 4


def test_disabled_turns_the_hook_off_for_what_it_calls():
    target, _ = make("return quiet(x)")
    _, helper = make()
    target.__globals__["quiet"] = hook.disabled(helper)
    record = Recorder(target=hook.RunOnce())
    run = hook.wrap(target, record)
    assert run(1) == 2 and record.offered == ["target"]
    assert target.__globals__["quiet"].__name__ == "helper"
    assert hook.wrap(lambda: hook.active(), record)() is True
    assert hook.disabled(hook.active)() is False


def test_never_trace_takes_functions_methods_partials_callables_and_code():
    class Call:
        def __call__(self, x):
            return x

        def method(self, x):
            return x

    def plain(x):
        return x

    for value in (plain, plain.__code__, functools.partial(plain, 1), Call(), Call().method):
        assert hook.never_trace(value) is value
    record = Recorder()
    assert hook.wrap(plain, record)(2) == 2
    assert hook.wrap(Call(), record)(2) == 2
    assert record.offered == []
    with pytest.raises(TypeError, match="no Python code"):
        hook.never_trace(len)


def test_callbacks_do_not_see_each_others_code():
    target, _ = make()
    one = Recorder(target=compiled("one"))
    two = Recorder(target=compiled("two"))
    assert [hook.wrap(target, one)(1), hook.wrap(target, two)(1)] == ["one", "two"]
    assert [hook.wrap(target, one)(1), hook.wrap(target, two)(1)] == ["one", "two"]
    assert one.offered == two.offered == ["target"], "wrapping again finds the code again"
    assert len(hook.cache_entries(target.__code__)) == 2
    assert len(hook.cache_entries(target.__code__, one)) == 1


def test_reset_forgets_code_and_skips():
    target, _ = make()
    record = Recorder(target=compiled("one"))
    run = hook.wrap(target, record)
    run(1)
    hook.reset(target.__code__)
    assert hook.cache_entries(target.__code__) == []
    run(1)
    assert record.offered == ["target", "target"]


def test_dropped_code_is_compiled_again():
    target, _ = make()
    record = Recorder(target=compiled("one"))
    run = hook.wrap(target, record)
    run(1)
    (entry,) = hook.cache_entries(target.__code__)
    entry.guards.drop()
    assert hook.cache_entries(target.__code__) == []
    assert run(1) == "one" and record.offered == ["target", "target"]
    entry.guards.drop()  # dropping twice does nothing
    assert len(hook.cache_entries(target.__code__)) == 1


def test_guards_may_outlive_the_code():
    target, _ = make()
    run = hook.wrap(target, Recorder(target=compiled("one")))
    run(1)
    (entry,) = hook.cache_entries(target.__code__)
    hook.reset(target.__code__)
    entry.guards.drop()
    assert entry.guards.check({"x": 1})


def test_the_hook_is_per_thread():
    target, _ = make()
    record = Recorder(target=hook.RunOnce())
    results = []

    def work():
        results.append(hook.active())
        results.append(hook.wrap(target, record)(7))

    def run():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    hook.wrap(run, Recorder())()
    assert results == [False, 7] and record.offered == ["target"]


@pytest.mark.parametrize("other", [lambda x, y: x, lambda *x: x, lambda **x: x, lambda *, x: x])
def test_code_that_does_not_fit_the_frame_is_refused(other):
    target, _ = make()

    def answer(frame, cache, state):
        checked = guard_list.build(
            guard_list.GuardList(), None, frame.code, frame.locals, {}, "0/0"
        )
        return hook.Compiled(other.__code__, checked, "0/0")

    with pytest.raises(StageError, match="target"):
        hook.wrap(target, answer)(1)


def test_a_wrong_answer_is_refused():
    target, _ = make()
    with pytest.raises(StageError, match="returned None"):
        hook.wrap(target, lambda *_: None)(1)


def test_wrapper_keeps_the_name():
    run = hook.wrap(make, Recorder())
    assert run.__name__ == "make" and run.__wrapped__ is make


def test_methods_and_generators_can_be_wrapped():
    record = Recorder(numbers=hook.RunOnce())

    def numbers(n):
        yield from range(n)

    assert list(hook.wrap(numbers, record)(3)) == [0, 1, 2]
    assert isinstance(hook.wrap(numbers, record)(3), types.GeneratorType)


def test_hook_loads_no_dynamo():
    program = """
import sys
from tc.compiler.capture import hook
hook.wrap(lambda: 1, lambda *_: hook.Skip("no"))()
assert not [m for m in sys.modules if m.startswith(("torch._dynamo", "torch._inductor"))]
"""
    done = python("-c", program)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("find", [lambda: None, lambda: SimpleOffer])
def test_wrappers_of_one_callback_share_its_code_whatever_makes_offers(find):
    before = hook._process.find_offer_type
    hook.offer_by(find)
    try:
        target, _ = make()
        record = Recorder(target=compiled(7, "EQUALS"))
        assert [hook.wrap(target, record)(1), hook.wrap(target, record)(1)] == [7, 7]
        assert record.offered == ["target"]
        assert len(hook.cache_entries(target.__code__, record)) == 1
        assert hook.cache_entries(target.__code__, Recorder()) == []
    finally:
        hook.offer_by(before)


class SimpleOffer:
    """What `hook.offer_by` asks of the type of offers, in Python."""

    def __init__(self, function, owner):
        self.function, self.owner = function, owner

    def __call__(self, *args):
        return self.function(*args)

    def __eq__(self, other):
        return isinstance(other, SimpleOffer) and self.owner == other.owner

    __hash__ = None
