"""Models and blocks of diffusers for the zoo: all modules it exports, made tiny by rules."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import torch
import zoo_operators  # noqa: F401 - before torchvision is imported
from zoo_specimen import (
    NoSpecimen,
    Specimen,
    first_that_works,
    integers,
    numbers,
    perturbed,
    small_enough,
)

Inputs = Callable[[int], dict[str, Any]]
Values = dict[str, Any]
BLOCKS = (
    "attention", "resnet", "downsampling", "upsampling", "normalization", "embeddings",
    "activations", "unets.unet_1d_blocks", "unets.unet_2d_blocks", "unets.unet_3d_blocks",
    "autoencoders.vae",
)  # fmt: skip
#: arguments that constructors of blocks must be given
GIVEN: Values = {
    "in_channels": 32, "out_channels": 32, "mid_channels": 32, "prev_output_channel": 32,
    "temb_channels": 64, "channels": 32, "dim": 32, "num_attention_heads": 4, "num_layers": 1,
    "attention_head_dim": 8, "embedding_dim": 32, "embed_dim": 32, "hidden_size": 32,
    "resolution_idx": None, "time_embed_dim": 64, "cross_attention_dim": 32, "dim_out": 32,
    "dim_in": 32, "n_heads": 4, "d_head": 8, "hidden_dim": 64, "num_embeddings": 16,
    "num_channels": 32, "output_dim": 32, "num_embeds_ada_norm": 16, "inner_dim": 64, "heads": 4,
    "query_dim": 32, "head_dim": 8, "conditioning_embedding_dim": 32, "num_groups": 4, "eps": 1e-5,
    "elementwise_affine": True, "conv_kernel_size": 3, "kernel_size": 3, "size": 8,
    "act_fn": "silu",
    "patch_size": 2, "height": 16, "width": 16, "num_classes": 10, "dropout_prob": 0.1,
    "cond_embed_dim": 32, "num_image_text_embeds": 4, "image_embed_dim": 32, "text_embed_dim": 32,
    "encoder_dim": 32, "num_heads": 4, "dim_head": 8, "depth": 1, "inp_dim": 32, "inp_channels": 32,
    "n_channels": 32, "norm_type": "layer_norm", "in_features": 32, "hidden_features": 64,
    "hidden_states_dim": 32, "pooled_projection_dim": 32, "image_embed_seq_len": 8,
}  # fmt: skip
#: arguments of constructors whose names say that they are counts, and the most there may be
COUNTS = {
    "num_layers": 2,
    "num_single_layers": 2,
    "layers": 1,
    "depth": 2,
    "blocks": 1,
    "n_layer": 1,
}
KEPT = (
    "kernel",
    "stride",
    "patch",
    "scale_factor",
    "sample_size",
    "in_channels",
    "ratio",
    "out_channels",
    "theta",
    "freq",
    "max_",
    "_type",
    "rate",
    "spatial",
    "temporal",
)


def shrunk(model_class: Any, factor: int) -> Values:
    """Return smaller values for the defaults of a constructor."""
    found: Values = {}
    for name, parameter in inspect.signature(model_class.__init__).parameters.items():
        value = parameter.default
        if name == "self" or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if value is parameter.empty:
            if name in GIVEN:
                found[name] = GIVEN[name]
            continue
        smaller = smaller_value(name, value, factor)
        if smaller != value:
            found[name] = smaller
    return found


def smaller_value(name: str, value: Any, factor: int) -> Any:
    """Return a smaller value of one argument."""
    if isinstance(value, tuple | list) and value:
        return type(value)(smaller_value(name, item, factor) for item in value)
    if type(value) is not int:
        return value
    for key, most in COUNTS.items():
        if key in name and value < 100:
            return min(value, most)
    if name == "sample_size" or name.endswith(("height", "width")):
        return min(value, 32)
    if "vocab" in name or "num_embed" in name:
        return min(value, 100)
    if "groups" in name:
        return min(value, 4)
    if name not in ("block_out_channels",) and any(key in name for key in KEPT):
        return value
    return max(value // factor, 1) if value >= 16 else value


class Shapes:
    """Makes inputs by names, for one guess at how many dimensions the main one has."""

    def __init__(self, config: Values, index: int, dims: int, side: int) -> None:
        self.config, self.index, self.dims = config, index, dims
        self.batch, self.side = 2 + index, side

    def setting(self, *names: str, default: int = 32) -> int:
        """Return the first setting there is."""
        for name in names:
            value = self.config.get(name)
            value = value[0] if isinstance(value, list | tuple) and value else value
            if type(value) is int:
                return value
        return default

    def main(self, seed: int = 3) -> torch.Tensor:
        """Return what the model works on."""
        channels = self.setting("in_channels", "channels", "dim", "query_dim", "embedding_dim")
        side = self.side
        if self.dims == 5:
            return numbers(self.batch, channels, 5, side, side, seed=seed)
        if self.dims == 4:
            return numbers(self.batch, channels, side, side, seed=seed)
        if self.dims == 2:
            return numbers(self.batch, channels, seed=seed)
        if self.dims == -3:
            return numbers(self.batch, channels, 64 * side, seed=seed)
        return numbers(self.batch, 16, channels, seed=seed)

    def text(self) -> torch.Tensor:
        """Return embeddings of tokens."""
        width = self.setting(
            "joint_attention_dim", "cross_attention_dim", "text_embed_dim", "text_dim",
            "caption_channels", "text_hidden_dim", "caption_projection_dim", "encoder_hid_dim",
            "text_states_dim", "context_in_dim", "cap_feat_dim", "conditioning_dim",
        )  # fmt: skip
        return numbers(self.batch, 8 + self.index, width)

    def pooled(self) -> torch.Tensor:
        """Return one embedding."""
        return numbers(
            self.batch, self.setting("pooled_projection_dim", "clip_text_pooled_in_channels")
        )

    def ids(self, count: int) -> torch.Tensor:
        """Return positions."""
        axes = self.config.get("axes_dims_rope") or self.config.get("axes_dim") or (0, 0, 0)
        return integers(8, count, len(axes)).float()


RULES: dict[str, Callable[[Shapes], Any]] = {
    "sample": Shapes.main,
    "hidden_states": Shapes.main,
    "x": Shapes.main,
    "input_tensor": Shapes.main,
    "inputs": Shapes.main,
    "image": Shapes.main,
    "z": Shapes.main,
    "latent": Shapes.main,
    "latents": Shapes.main,
    "mel": Shapes.main,
    "controlnet_cond": lambda s: numbers(s.batch, 3, 8 * s.side, 8 * s.side),
    "res_hidden_states_tuple": lambda s: (s.main(4),),
    "encoder_hidden_states": Shapes.text,
    "context": Shapes.text,
    "encoder_attention_mask": lambda s: torch.ones(s.batch, 8 + s.index),
    "timestep": lambda s: torch.linspace(3, 500, s.batch),
    "timesteps": lambda s: torch.linspace(3, 500, s.batch),
    "timestep_ratio": lambda s: torch.linspace(0.1, 0.9, s.batch),
    "temb": lambda s: numbers(s.batch, s.setting("temb_channels", "time_embed_dim", default=64)),
    "emb": lambda s: numbers(s.batch, s.setting("embedding_dim", default=32)),
    "pooled_projections": Shapes.pooled,
    "clip_text_pooled": lambda s: s.pooled()[:, None],
    "guidance": lambda s: torch.linspace(1, 4, s.batch),
    "img_ids": lambda s: s.ids(16),
    "txt_ids": lambda s: s.ids(8 + s.index),
    "class_labels": lambda s: integers(10, s.batch),
    "proj_embedding": lambda s: numbers(s.batch, s.setting("embedding_dim", default=32)),
    "fps": lambda s: torch.full((s.batch,), 7),
    "added_time_ids": lambda s: numbers(s.batch, 3),
    "num_frames": lambda s: 1,
    "original_size": lambda s: torch.full((s.batch, 2), 16.0),
    "target_size": lambda s: torch.full((s.batch, 2), 16.0),
    "crop_coords": lambda s: torch.zeros(s.batch, 2),
    "size": lambda s: torch.full((s.batch, 2), 16.0),
    "image_only_indicator": lambda s: torch.zeros(s.batch, 1),
    "conditioning": lambda s: numbers(s.batch, 32),
    "image_embeds": lambda s: numbers(s.batch, 32),
    "text_embeds": lambda s: numbers(s.batch, 32),
    "added_cond_kwargs": lambda s: {"text_embeds": s.pooled(), "time_ids": numbers(s.batch, 6)},
    "rotary_emb": lambda s: None,
    "batch_size": lambda s: s.batch,
}
OPTIONAL = ("encoder_hidden_states", "timestep", "temb", "pooled_projections", "img_ids", "txt_ids",
            "guidance", "class_labels")  # fmt: skip


class Diffusers:
    """All models and blocks of diffusers."""

    def names(self) -> list[str]:
        """Return the names of all modules exported, and those of blocks with their module."""
        from diffusers import models as exported

        models = []
        for name in dir(exported):
            found = getattr(exported, name, None) if name[0].isupper() else None
            if inspect.isclass(found) and issubclass(found, torch.nn.Module):
                models.append(name)
        blocks = [
            f"{place}.{name}"
            for place in BLOCKS
            for name, found in vars(import_module(f"diffusers.models.{place}")).items()
            if inspect.isclass(found)
            and issubclass(found, torch.nn.Module)
            and found.__module__ == f"diffusers.models.{place}"
        ]
        return models + blocks

    def build(self, name: str, recipe: Any) -> Specimen:
        from diffusers import models as exported

        if "." in name:
            place, _, short = name.rpartition(".")
            model_class = getattr(import_module(f"diffusers.models.{place}"), short)
        else:
            model_class = getattr(exported, name)
        return first_that_works(tries(model_class), recipe)


def tries(model_class: Any) -> Iterator[tuple[Any, Callable[[], tuple[Any, Inputs]]]]:
    """Yield ways to make a model and call it, smallest first."""
    parameters = inspect.signature(model_class.forward).parameters
    needed = [
        name
        for name, parameter in parameters.items()
        if name != "self"
        and parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    extra = [name for name in OPTIONAL if name in parameters and name not in needed]
    for factor in (4, 8, 2, 1):
        made: Values = {}
        for dims, side, more in itertools.product(
            (4, 5, 3, 2, -3), (8, 16, 32), ((True, False) if extra else (False,))
        ):
            names = [*needed, *extra] if more else needed
            yield (
                [factor, dims, side, more],
                functools.partial(make, model_class, factor, made, names, dims, side),
            )


def make(
    model_class: Any, factor: int, made: Values, names: list[str], dims: int, side: int
) -> tuple[torch.nn.Module, Inputs]:
    """Return a model with inputs."""
    if "error" in made:
        raise made["error"]
    if "model" not in made:
        try:
            settings = shrunk(model_class, factor)
            create = functools.partial(model_class, **settings)
            if not small_enough(create):
                raise NoSpecimen("too large")
            made["model"], made["settings"] = perturbed(create()), settings
        except Exception as error:
            made["error"] = error
            raise
    model = made["model"]
    config = {**made["settings"], **dict(getattr(model, "config", {}))}
    missing = [name for name in names if name not in RULES]
    if missing:
        raise NoSpecimen(f"no rule for the argument {missing[0]}")
    return model, lambda index: {
        name: RULES[name](Shapes(config, index, dims, side)) for name in names
    }
