"""Models of transformers for the zoo: all types its auto classes know, made tiny by rules.

Widths are divided by one factor everywhere, so that what was equal stays equal and what was a
multiple stays one; counts of layers, experts, tokens and pixels are cut. Which factor and which
inputs a model takes is found by trying.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import torch
import zoo_operators  # noqa: F401 - before torchvision is imported
from zoo_specimen import NoSpecimen, Specimen, first_that_works, perturbed, small_enough
from zoo_tokens import Inputs, choices

#: what default widths are divided by, in the order of trying
FACTORS = (8, 16, 4, 2, 1)
LAYERS = re.compile(
    r"layers$|^n_layers?$|_layer$|^depth$|num_blocks|n_blocks|^num_stacks$|_depth$|num_block_"
    r"|decoder_depth|num_conv_layers|num_hidden_groups|decoder_blocks"
)
NO_WIDTH = re.compile(
    r"heads|head_num|n_head|kernel|stride|patch|image_size|input_size|crop|channels_in|experts?$"
    r"|position|vocab|_ids?$|_index$|token|num_mel|sampling|rate|window|_rank_|layer|type_|labels"
    r"|num_queries|max_|min_|pad|length|num_channels|num_frames|n_mels|freq|mel_bins|theta"
    r"|in_channels|tubelet|spatial|temporal|points|levels|interval|bucket|size_factor|chunk"
)
WIDTH = re.compile(
    r"hidden|dim|size|width|embd|embed|inter|ffn|channel|inner|rank|d_model|d_ff|d_kv|state|n_inner"
    r"|groups|section|feature|out_features|mlp|features$"
)
CUT = {  # names of counts -> the most there may be
    re.compile(r"vocab_size|vocab$|codebook_size|n_vocab|num_embeddings"): 150,
    re.compile(r"max_position|n_positions|n_ctx|max_.*length|max_seq|max_source|max_target"): 128,
    re.compile(r"num_(local_|routed_)?experts$|n_routed_experts|num_experts|moe_num_experts"): 4,
    re.compile(r"experts_per_tok|moe_k$|top_k$|num_selected_experts|moe_topk"): 2,
    re.compile(r"^n_group$|num_expert_group"): 2,
    re.compile(r"topk_group"): 1,
    re.compile(r"num_queries|num_object_queries|two_stage_num_proposals"): 12,
    re.compile(r"num_frames"): 4,
    re.compile(r"context_length|prediction_length"): 32,
    re.compile(r"^(num_feature_levels|encoder_n_points|decoder_n_points)$"): 4,
}
IDS = re.compile(r"token_ids?$|_token_index$|(bos|eos|pad|sep|cls|mask|unk)_id$|^boi|^eoi|_token$")


class Shrinking:
    """Makes a configuration tiny, its parts too."""

    def __init__(self, factor: int, side: int | None) -> None:
        self.factor, self.side = factor, side

    def config(self, config: Any) -> Any:
        """Return a smaller configuration of the same class."""
        changed: dict[str, Any] = {}
        for name, value in vars(config).items():
            if name.startswith("_") or name in ("transformers_version", "id2label", "label2id"):
                continue
            new = self.value(name, value)
            if new is not value and not (isinstance(value, int | list | str) and new == value):
                changed[name] = new
        smaller = copy.deepcopy(config)
        for name, value in changed.items():
            try:
                setattr(smaller, name, value)
            except (AttributeError, TypeError, ValueError):
                continue
        self.lists(config, smaller)
        return smaller

    def value(self, name: str, value: Any) -> Any:
        """Return the smaller value of one setting."""
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            return self.config(value)
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int):
            return self.number(name, value)
        whole = isinstance(value, list | tuple) and value
        if whole and all(type(item) is int for item in value):
            if re.search(r"depths|num_blocks|layer_repeats|stage_num_blocks|encoder_layers", name):
                return type(value)(min(item, 2) for item in value)
            return type(value)(self.number(name, item) for item in value)
        if isinstance(value, dict) and name not in ("rope_scaling",):
            return {key: self.value(str(key), item) for key, item in value.items()}
        return value

    def number(self, name: str, value: int) -> int:
        """Return a smaller number."""
        for pattern, most in CUT.items():
            if pattern.search(name):
                return min(value, most)
        if IDS.search(name):
            return value if 0 <= value < 100 else (value if value < 0 else 100 + value % 50)
        if LAYERS.search(name) and not name.startswith(("max_", "first_", "out_")):
            return min(value, 2)
        if re.search(
            r"^(image|img|input|crop|input_image)_?size|^(height|width)$|^resolution", name
        ):
            return self.side if self.side and value > self.side else value
        if value >= 8 and WIDTH.search(name) and not NO_WIDTH.search(name):
            return max(value // self.factor, 1)
        return value

    @staticmethod
    def lists(config: Any, smaller: Any) -> None:
        """Shorten lists that have an item a layer; one of each kind stays."""
        for count in [n for n in vars(config) if LAYERS.search(n)]:
            before = vars(config)[count]
            if type(before) is not int:
                continue
            for name, value in vars(config).items():
                if isinstance(value, list) and len(value) == before and before > 2:
                    kinds = sorted({repr(item) for item in value})
                    firsts = [next(i for i in value if repr(i) == kind) for kind in kinds]
                    short = (firsts + value)[: max(2, min(len(firsts), 4))]
                    setattr(smaller, name, short)
                    if "type" in name or len(short) > 2:
                        setattr(smaller, count, len(short))


class Transformers:
    """All model types that the auto classes of transformers know."""

    def names(self) -> list[str]:
        """Return the names of all model types."""
        return sorted(self._classes())

    @functools.lru_cache(maxsize=1)  # noqa: B019 - one family a process
    def _classes(self) -> dict[str, str]:
        from transformers.models.auto import modeling_auto

        found: dict[str, str] = {}
        names = [name for name in dir(modeling_auto) if re.match(r"MODEL_.*MAPPING_NAMES", name)]
        for name in sorted(names, key=lambda name: (name != "MODEL_MAPPING_NAMES", name)):
            for model_type, classes in getattr(modeling_auto, name).items():
                first = classes if isinstance(classes, str) else classes[0]
                found.setdefault(model_type, first)
        for model_type in modeling_auto.CONFIG_MAPPING_NAMES:
            found.setdefault(model_type, "")
        return found

    def build(self, name: str, recipe: Any) -> Specimen:
        import transformers
        from transformers import CONFIG_MAPPING

        try:
            config = CONFIG_MAPPING[name]()
            auto = self._classes()[name]
            model_class = getattr(transformers, auto) if auto else model_of(type(config))
        except Exception as error:  # configurations check themselves, with errors of their own
            raise NoSpecimen(f"no default configuration: {error}") from error
        if not inspect.isclass(model_class) or not issubclass(model_class, torch.nn.Module):
            raise NoSpecimen("not a module")
        return first_that_works(tries(model_class, config), recipe)


def model_of(config_class: type) -> Any:
    """Return the first model that a configuration is for; None where there is none."""
    place = config_class.__module__.replace("configuration_", "modeling_")
    for found in vars(import_module(place)).values():
        if inspect.isclass(found) and found.__dict__.get("config_class") is config_class:
            return found
    for found in vars(import_module(place)).values():
        if inspect.isclass(found) and getattr(found, "config_class", None) is config_class:
            return found
    return None


def tries(model_class: Any, config: Any) -> Iterator[tuple[Any, Callable[[], tuple[Any, Inputs]]]]:
    """Yield ways to make a model and call it, smallest first."""
    for factor in FACTORS:
        for side in (None, 32, 64, 224):
            made: dict[str, Any] = {}

            def model(factor: int = factor, side: int | None = side, made: Any = made) -> Any:
                if "error" in made:
                    raise made["error"]
                if "model" not in made:
                    try:
                        made["model"] = build(model_class, config, factor, side)
                    except Exception as error:
                        made["error"] = error
                        raise
                return made["model"]

            for index in range(choices(model_class)):
                yield (
                    [factor, side, index],
                    functools.partial(with_inputs, model, model_class, index),
                )


def with_inputs(
    model: Callable[[], Any], model_class: Any, index: int
) -> tuple[torch.nn.Module, Inputs]:
    """Return a model with the inputs of a choice."""
    found = model()
    return found, choices.inputs(model_class, found.config, index)


def build(model_class: Any, config: Any, factor: int, side: int | None) -> torch.nn.Module:
    """Return a tiny model.

    Raises:
        NoSpecimen: it is not tiny, or `side` means nothing to it.
    """
    patch = find(config, "patch_size")
    if side is None and isinstance(patch, int):
        side = 4 * patch
    smaller = Shrinking(factor, side).config(config)
    make = functools.partial(model_class, smaller)
    if not small_enough(make):
        raise NoSpecimen("too large")
    return perturbed(make())


def find(config: Any, name: str) -> Any:
    """Return a setting of a configuration or of one of its parts."""
    value = getattr(config, name, None)
    if value is not None:
        return value
    for part in vars(config).values():
        if hasattr(part, "to_dict") and hasattr(part, "model_type"):
            value = find(part, name)
            if value is not None:
                return value
    return None
