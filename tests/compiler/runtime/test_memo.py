"""A memo: full checks that are skipped exactly as long as no dictionary on the way changed."""

from __future__ import annotations

import gc
import sys
from collections import OrderedDict

import pytest

from tc.compiler.runtime.memo import memo_type

memo = memo_type()
pytestmark = pytest.mark.skipif(memo is None, reason="no dictionary versions on this Python")


class Box:
    def __init__(self, **fields):
        self.__dict__.update(fields)


class Other(Box):
    pass


STEPS = ((-1, None), (0, None), (1, "part"), (2, None), (3, "table"), (4, "item"))


def box():
    return Box(part=Box(table={"item": 1, "more": 2}, flag=True))


class Full:
    """A full check that counts its calls."""

    def __init__(self, answer=True):
        self.calls = 0
        self.answer = answer

    def __call__(self, root):
        self.calls += 1
        return self.answer


def changes():
    def other_class(b):
        b.part.__class__ = Other

    def new_dict(b):
        b.part.__dict__ = dict(b.part.__dict__)

    return {
        "attribute set": lambda b: setattr(b.part, "flag", False),
        "attribute added": lambda b: setattr(b, "extra", 1),
        "attribute deleted": lambda b: delattr(b.part, "flag"),
        "object replaced": lambda b: setattr(b, "part", box().part),
        "item set": lambda b: b.part.table.update(item=5),
        "item deleted": lambda b: b.part.table.pop("more"),
        "dict cleared and filled": lambda b: (b.part.table.clear(), b.part.table.update(item=1)),
        "class assigned": other_class,
        "__dict__ assigned": new_dict,
    }


@pytest.mark.parametrize("change", changes().values(), ids=changes())
def test_a_change_calls_for_a_full_check(change):
    full, root = Full(), box()
    check = memo(STEPS, full, (), None)
    assert [check(root) for _ in range(3)] == [True] * 3
    assert full.calls == 1
    change(root)
    assert check(root) is check(root) is True
    assert full.calls == 2


def test_a_change_elsewhere_does_not():
    full, root = Full(), box()
    root.part.table["deep"] = {}
    check = memo(STEPS, full, (), None)
    check(root)
    root.part.table["deep"]["x"] = 1
    assert check(root) is True
    assert full.calls == 1


def test_a_check_that_fails_is_not_remembered():
    full, root = Full(answer=False), box()
    check = memo(STEPS, full, (), None)
    assert check(root) is check(root) is False
    assert full.calls == 2
    full.answer = True
    assert check(root) is check(root) is True
    assert full.calls == 3


def test_a_change_during_the_full_check_is_not_remembered():
    root = box()
    calls = []

    def full(it):
        calls.append(it)
        if len(calls) == 1:
            it.part.flag = 7
        return True

    check = memo(STEPS, full, (), None)
    assert [check(root) for _ in range(3)] == [True] * 3
    assert len(calls) == 2


def test_an_error_of_the_full_check_passes_through():
    def full(it):
        raise LookupError("no")

    with pytest.raises(LookupError):
        memo(STEPS, full, (), None)(box())


def test_several_objects_are_remembered_and_none_is_kept_alive():
    full = Full()
    check = memo(STEPS, full, (), None)
    roots = [box() for _ in range(4)]
    for root in roots * 3:
        assert check(root)
    assert full.calls == 4
    before = [sys.getrefcount(part) for part in (roots[0], roots[0].part, roots[0].part.table)]
    check(roots[0])
    assert before == [sys.getrefcount(p) for p in (roots[0], roots[0].part, roots[0].part.table)]
    for _ in range(50):  # addresses are used again, by objects that were never checked
        roots = [box() for _ in range(4)]
        seen = full.calls
        for root in roots:
            check(root)
        assert full.calls == seen + 4
        gc.collect(1)


def test_it_stops_remembering_what_always_changes():
    full, root = Full(), box()
    check = memo(STEPS, full, (), None)
    for number in range(400):
        root.part.flag = number
        assert check(root) is True
    assert full.calls == 400
    assert check.misses == 256


def test_a_missing_key_leaves_all_to_the_full_check():
    full, root = Full(), box()
    check = memo((*STEPS, (4, "absent")), full, (), None)
    assert check(root) is check(root) is True
    assert full.calls == 2


def test_wanted_objects_are_checked_each_time():
    seen, root = [], box()
    check = memo(STEPS, Full(), (5, 2), lambda found: seen.append(found) or len(seen) < 3)
    assert [check(root) for _ in range(3)] == [True, True, False]
    assert seen == [(1, root.part)] * 3
    root.part.table["item"] = 9
    check(root)
    assert seen[-1] == (9, root.part)


def test_without_a_full_check_it_reads():
    root = box()
    read = memo(STEPS, None, (5, 4), None)
    assert read(root) == read(root) == (1, root.part.table)
    root.part.table = {"item": "new"}
    assert read(root) == ("new", root.part.table)
    del root.part.table["item"]
    with pytest.raises(RuntimeError, match="has changed since"):
        read(root)


def test_ordered_dicts_count_as_dicts():
    full = Full()
    root = Box(hooks=OrderedDict())
    check = memo(((-1, None), (0, None), (1, "hooks")), full, (), None)
    check(root), check(root)
    root.hooks[1] = print
    check(root)
    assert full.calls == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ((), None, (0,), None),
        (((-1, None), (1, None)), Full(), (), None),
        (((0, None),), Full(), (), None),
        (STEPS, Full(), (9,), Full()),
        (STEPS, Full(), (1,), None),
        (STEPS, None, (), None),
    ],
)
def test_what_makes_no_sense_is_refused(arguments):
    with pytest.raises(ValueError):
        memo(*arguments)


def test_it_takes_one_argument():
    check = memo(STEPS, Full(), (), None)
    with pytest.raises(TypeError):
        check()
    with pytest.raises(TypeError):
        check(root=box())
