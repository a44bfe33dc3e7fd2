"""Settings: changed for a block or a function, and back; names that do not exist."""

from __future__ import annotations

import pytest
import torch

import tc
from tc.compiler.errors import OptionError
from tc.compiler.options import config


def test_patch_as_block_and_as_decorator_nested():
    before = config.recompile_limit

    @config.patch("recompile_limit", 3)
    def inner():
        with config.patch({"recompile_limit": 4}, suppress_errors=True):
            assert (config.recompile_limit, config.suppress_errors) == (4, True)
        return config.recompile_limit

    assert [inner(), inner()] == [3, 3]
    assert (config.recompile_limit, config.suppress_errors) == (before, False)
    with pytest.raises(ZeroDivisionError), config.patch(recompile_limit=1):
        raise ZeroDivisionError
    assert config.recompile_limit == before


def test_older_names_of_torch_mean_the_same():
    with config.patch(cache_size_limit=2):
        assert config.recompile_limit == config.cache_size_limit == 2


def test_random_numbers_are_always_in_the_order_of_eager():
    with config.patch(fallback_random=True):
        x = torch.rand(100, requires_grad=True)
        compiled = tc.compile(torch.nn.functional.dropout, options={"fallback_random": True})
        torch.manual_seed(0)
        ours = compiled(x)
        torch.manual_seed(0)
        assert torch.equal(ours == 0, torch.nn.functional.dropout(x) == 0)


def test_unknown_names_are_refused_with_the_nearest():
    for change in (
        lambda: config.patch(recompile_limt=1),
        lambda: setattr(config, "recompile_limt", 1),
    ):
        with pytest.raises(OptionError, match="recompile_limit"):
            change()
    assert not hasattr(config, "recompile_limt")
