"""The functions of a model to export, with example inputs and names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from patcomp.errors import PatcompError
from patcomp.frontend_torch.exporting.kept import kept
from patcomp_models.checkpoints.untrusted import object_in

EXAMPLE_LENGTH = 16
"""The length of example texts."""


@dataclass(frozen=True)
class Entry:
    """A function of a converted model."""

    name: str
    module: nn.Module
    inputs: Mapping[str, Tensor]
    """Example inputs, by the names that the function has for them, in the order in which the module takes them."""
    outputs: tuple[str, ...]
    dynamic: Mapping[str, dict[int, Any]] = field(default_factory=dict)
    """The dynamic dimensions of inputs."""
    states: tuple[str, ...] = ()
    """The names of the last inputs, which the module writes to."""
    keeps_sizes: bool = False
    """Whether the callers of a bundle keep the sizes that the export assumes: no more tokens than a cache holds."""
    has_sums_of_sizes: bool = False
    """As for `exported_module`."""

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the inputs that are not states."""
        return tuple(name for name in self.inputs if name not in self.states)


class Outputs(nn.Module):
    """A model whose results are some of its output's tensors.

    Args:
        model: a model of transformers.
        names: of the tensors.
    """

    def __init__(self, model: nn.Module, names: tuple[str, ...]):
        super().__init__()
        self.model = model
        self.names = names

    def chosen(self, **inputs: Tensor) -> tuple[Tensor, ...]:
        """The tensors of the names."""
        result = self.model(**inputs)
        return tuple(result[name] for name in self.names)


class Images(Outputs):
    """A model that takes images."""

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, ...]:
        return self.chosen(pixel_values=pixel_values)


class Texts(Outputs):
    """A model that takes texts, or pairs of texts whose tokens have the types 0 and 1."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        return self.chosen(input_ids=input_ids, attention_mask=attention_mask, **types)


class Documents(Outputs):
    """A model that takes the words of a page, their boxes, and perhaps the page itself."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, bbox: Tensor, pixel_values: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        page = {} if pixel_values is None else {"pixel_values": pixel_values}
        return self.chosen(input_ids=input_ids, attention_mask=attention_mask, bbox=bbox, **page)


def whole_entries(model: Any, folder: Path) -> list[Entry]:
    """A model that takes an image or a text, with all tensors of its output."""
    if hasattr(model, "prompt_encoder"):  # without points its masks would be of nothing
        raise PatcompError(
            f"{type(model).__name__} answers points, and becomes a bundle; give -o a name without .aimodel, or call "
            "convert_bundle"
        )
    kind = model.main_input_name
    if kind == "inputs":  # of Perceiver, whose class says of what
        takes = signature(model.forward).parameters
        kind = next((name for name in ("pixel_values", "input_ids") if name in takes), kind)
    if kind == "input_ids":
        return text_entries(model, folder)
    if kind != "pixel_values":
        raise PatcompError(f"{type(model).__name__} takes {kind}, and no image or text; export it by FILE.py:FUNCTION")
    return [with_all_outputs(model, Images, {"pixel_values": image(model, folder)})]


def text_entries(model: Any, folder: Path, *, pairs: bool = False) -> list[Entry]:
    """A model that takes a text of any length, or `pairs` of texts.

    Raises:
        PatcompError: as `text_inputs`.
    """
    wrapper, inputs, open_sizes = text_inputs(model, folder, pairs=pairs)
    return [with_all_outputs(model, wrapper, inputs, open_sizes)]


def text_inputs(
    model: Any, folder: Path, *, pairs: bool = False
) -> tuple[type[Outputs], dict[str, Tensor], dict[str, dict[int, Any]]]:
    """How a model takes a text, or `pairs` of texts: the wrapper, example inputs and their open sizes.

    Raises:
        PatcompError: the model takes more of a text than its tokens and the boxes of its words.
    """
    takes = signature(model.forward).parameters
    if lost := [name for name in _LOST if name in takes and not _has_one_language(name, model.config)]:
        raise PatcompError(
            f"{type(model).__name__} takes {lost[0]} too, and without it computes something else; export it by "
            "FILE.py:FUNCTION"
        )
    longest = getattr(model.config, "max_position_embeddings", None) or 512
    wrapper: type[Outputs] = Documents if "bbox" in takes else Texts
    inputs = texts(model, min(EXAMPLE_LENGTH, longest), pairs=pairs and wrapper is Texts)
    if wrapper is Documents:
        corners = torch.tensor([10, 20, 110, 40])  # left, top, right, bottom in thousandths of the page
        inputs["bbox"] = corners.expand(1, len(inputs["input_ids"][0]), 4).contiguous()
    open_sizes = {name: {1: Dim("length", min=2, max=longest)} for name in inputs}
    if wrapper is Documents and "pixel_values" in takes:
        inputs["pixel_values"] = image(model, folder)
    return wrapper, inputs, open_sizes


_LOST = ("image", "xpath_tags_seq", "input_shape_ids", "lang_ids", "langs")
"""Arguments that a model of texts needs besides tokens and boxes, and does without in silence: of LayoutLMv2, MarkupLM,
RoCBert, X-MOD, and XLM of several languages."""


def _has_one_language(name: str, config: Any) -> bool:
    return name == "langs" and getattr(config, "n_langs", 1) == 1


def with_all_outputs(
    model: Any,
    wrapper: type[Outputs],
    inputs: dict[str, Tensor],
    open_sizes: Mapping[str, dict[int, Any]] | None = None,
) -> Entry:
    """The function `main`, with all tensors of the model's output."""
    with torch.no_grad(), kept(model):  # BigBird chooses another attention for good where a text is short
        result = model(**inputs)
    names = tuple(name for name, value in result.items() if isinstance(value, Tensor))
    return Entry("main", wrapper(model, names), inputs, names, open_sizes or {})


def image(model: Any, folder: Path) -> Tensor:
    """An example image of the size that a model takes."""
    config = getattr(model.config, "vision_config", None) or model.config
    inner = getattr(config, "backbone_config", None) or config
    size = getattr(config, "image_size", None) or getattr(inner, "image_size", None)
    if size is None and (folder / "preprocessor_config.json").is_file():
        found = object_in(folder / "preprocessor_config.json")
        size = found.get("crop_size") or found.get("size")
    if isinstance(size, dict):
        size = [size["height"], size["width"]] if "height" in size else size.get("shortest_edge")
    height, width = size if isinstance(size, list | tuple) else [size or 224] * 2
    channels = getattr(inner, "num_channels", None) or getattr(config, "num_channels", None) or 3
    made = torch.linspace(-1, 1, channels * height * width)
    return made.reshape(1, -1, height, width).to(model.dtype)


def texts(model: Any, length: int, *, pairs: bool = False) -> dict[str, Tensor]:
    """An example text; for `pairs` of texts also the types of the tokens, 0 and 1, if the model has such, as BERT."""
    config = getattr(model.config, "text_config", model.config)
    ids = torch.arange(length)[None] % config.vocab_size
    inputs = {"input_ids": ids, "attention_mask": torch.ones(1, length, dtype=torch.int64)}
    has_types = (getattr(config, "type_vocab_size", None) or 0) > 1
    if pairs and has_types and "token_type_ids" in signature(model.forward).parameters:
        inputs["token_type_ids"] = ids // 8 % 2
    return inputs
