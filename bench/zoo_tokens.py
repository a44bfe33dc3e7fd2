"""Inputs for models of transformers: made from the names of the arguments of `forward`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from zoo_specimen import NoSpecimen, integers, numbers

Inputs = Callable[[int], dict[str, Any]]
BATCH, LENGTH = (2, 3), (12, 17)


def setting(config: Any, *names: str, default: int = 0) -> Any:
    """Return the first setting that a configuration or one of its parts has."""
    parts = [config, *(p for p in vars(config).values() if hasattr(p, "model_type"))]
    for name in names:
        for part in parts:
            value = getattr(part, name, None)
            if isinstance(value, list | tuple) and value and type(value[0]) is int:
                value = value[0]
            if type(value) is int:
                return value
    return default


def vocabulary(config: Any) -> int:
    """Return how many tokens there are that mean nothing special."""
    return min(100, setting(config, "vocab_size", "n_vocab", "src_vocab_size", default=100))


class Makers:
    """Makes one input by the name of the argument."""

    def __init__(self, config: Any, index: int) -> None:
        self.config, self.index = config, index
        self.batch, self.length = BATCH[index], LENGTH[index]

    def make(self, name: str) -> Any:
        """Return an input.

        Raises:
            NoSpecimen: there is no rule for an argument of this name.
        """
        maker = RULES.get(name)
        if maker is None:
            raise NoSpecimen(f"no rule for the argument {name}")
        return maker(self)

    def ids(self) -> torch.Tensor:
        """Return tokens."""
        return integers(vocabulary(self.config), self.batch, self.length, low=3)

    def pixels(self, *extra: int, seed: int = 3) -> torch.Tensor:
        """Return images."""
        channels = setting(self.config, "num_channels", "in_channels", "in_chans", default=3)
        side = setting(self.config, "image_size", "img_size", "input_size", default=64)
        return numbers(self.batch, *extra, channels, side, side, seed=seed)

    def frames(self) -> torch.Tensor:
        """Return a video."""
        return self.pixels(setting(self.config, "num_frames", "frames", default=4))

    def sound(self) -> torch.Tensor:
        """Return a wave."""
        return numbers(self.batch, 2000 + 700 * self.index)

    def spectrum(self) -> torch.Tensor:
        """Return a spectrogram, time last."""
        bins = setting(self.config, "num_mel_bins", "n_mels", "feature_size", default=80)
        positions = setting(self.config, "max_source_positions", default=0)
        return numbers(self.batch, bins, 2 * positions or 64)

    def steps(self) -> torch.Tensor:
        """Return a spectrogram, bins last."""
        return self.spectrum().transpose(1, 2).contiguous()

    def boxes(self) -> torch.Tensor:
        """Return the boxes of tokens on a page."""
        corner = integers(50, self.batch, self.length, 2)
        return torch.cat([corner, corner + integers(50, self.batch, self.length, 2)], -1)

    def hidden(self) -> torch.Tensor:
        """Return embeddings."""
        width = setting(self.config, "hidden_size", "d_model", "embed_dim", "dim", default=64)
        return numbers(self.batch, self.length, width)

    def series(self) -> torch.Tensor:
        """Return a time series with channels."""
        length = setting(self.config, "context_length", "prediction_length", default=32)
        channels = setting(self.config, "num_input_channels", "input_size", default=1)
        return numbers(self.batch, length, channels)

    def ones(self) -> torch.Tensor:
        """Return a mask of tokens with one left out."""
        mask = torch.ones(self.batch, self.length, dtype=torch.int64)
        mask[-1, -2:] = 0
        return mask


RULES: dict[str, Callable[[Makers], Any]] = {
    "input_ids": Makers.ids,
    "decoder_input_ids": Makers.ids,
    "attention_mask": Makers.ones,
    "pixel_values": Makers.pixels,
    "images": Makers.pixels,
    "image": Makers.pixels,
    "pixel_values_videos": Makers.frames,
    "input_values": Makers.sound,
    "input_features": Makers.spectrum,
    "audio_values": Makers.spectrum,
    "bbox": Makers.boxes,
    "inputs_embeds": Makers.hidden,
    "hidden_states": Makers.hidden,
    "encoder_hidden_states": Makers.hidden,
    "past_values": Makers.series,
    "inputs": Makers.ids,
    "spectrogram": Makers.steps,
    "return_loss": lambda _: False,
}
#: what takes the place of a rule, where its inputs do not fit
OTHERS: list[dict[str, Callable[[Makers], Any]]] = [
    {},
    {
        "pixel_values": Makers.frames,
        "input_features": Makers.steps,
        "input_values": Makers.spectrum,
    },
    {"input_values": Makers.steps, "pixel_values": lambda m: m.pixels(1), "inputs": Makers.hidden},
    {
        "pixel_values": lambda m: m.pixels(2),
        "input_values": lambda m: m.sound()[:, None],
        "inputs": Makers.pixels,
    },
]
#: which arguments besides those that must be given, most first
SETS: list[tuple[str, ...]] = [
    ("input_ids", "attention_mask", "pixel_values", "decoder_input_ids", "bbox", "input_values",
     "input_features"),
    ("input_ids", "attention_mask", "decoder_input_ids"),
    ("input_ids", "decoder_input_ids"),
    ("pixel_values", "decoder_input_ids"),
    ("input_features", "decoder_input_ids"),
    ("input_values", "decoder_input_ids"),
    (),
]  # fmt: skip


class Choices:
    """Which inputs a model may be called with."""

    def __call__(self, model_class: Any) -> int:
        """Return how many choices there are."""
        return len(OTHERS) * len(self._sets(model_class))

    def _sets(self, model_class: Any) -> list[tuple[str, ...]]:
        parameters = inspect.signature(model_class.forward).parameters
        needed = [
            name
            for name, parameter in parameters.items()
            if name != "self"
            and parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        ]
        main = getattr(model_class, "main_input_name", None)
        found: list[tuple[str, ...]] = []
        for names in SETS:
            wanted = [*needed, *([main] if isinstance(main, str) else []), *names]
            kept = tuple(dict.fromkeys(name for name in wanted if name in parameters))
            if kept and kept not in found:
                found.append(kept)
        return found

    def inputs(self, model_class: Any, config: Any, index: int) -> Inputs:
        """Return the inputs of one choice."""
        sets = self._sets(model_class)
        names, others = sets[index % len(sets)], OTHERS[index // len(sets)]

        def make(size: int) -> dict[str, Any]:
            makers = Makers(config, size)
            return {
                name: others[name](makers) if name in others else makers.make(name)
                for name in names
                if name != "decoder_input_ids" or getattr(config, "is_encoder_decoder", True)
            }

        return make


choices = Choices()
