"""The language model inside a model that takes images or sounds, too: `Qwen3_5ForCausalLM` in
`Qwen3_5ForConditionalGeneration`.

The whole model is loaded, so that each weight of the checkpoint has its place. The language model is then made of the
modules of the whole one, and both are compared on a few tokens.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from patcomp.errors import reason_of
from patcomp_models.checkpoints.folders import CAUSAL, LANGUAGE_MODELS, class_name
from patcomp_models.checkpoints.loading import classes_of
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.conventions import CACHE

_TOKENS, _TOLERANCE = 8, 1e-3
"""How many tokens are compared, and the largest difference of a logit, as a part of the largest: both are the same code
in the same type."""


def whole_class(config: Mapping[str, Any]) -> str | None:
    """The class of transformers that a folder names, if it generates text and has a language model as a part.

    Args:
        config: the content of `config.json`.
    """
    import transformers

    name, kind = class_name(dict(config)), config.get("model_type")
    found = getattr(transformers, name, None) if name.isidentifier() else None
    own = getattr(found, "config_class", None)
    if own is None or not name.endswith(("ForConditionalGeneration", *LANGUAGE_MODELS)):
        return None
    is_whole = own.model_type == kind and "text_config" in own.sub_configs
    return None if not is_whole or config.get("is_encoder_decoder") else name


@dataclass(frozen=True)
class TextPart:
    """A language model, and what of the whole model is not in it."""

    model: nn.Module
    left_out: str
    """The parts and how many weights they have, for a message: `model.visual (12 weights)`."""


class WithHead(nn.Module):
    """A decoder and its head, where transformers has no class of the two, as for Qwen3-VL.

    Args:
        decoder: a model of transformers that gives hidden states.
        head: from hidden states to logits.
        whole: the model that they are parts of.
    """

    def __init__(self, decoder: nn.Module, head: nn.Module, whole: Any):
        super().__init__()
        self.model: Any = decoder
        self.lm_head = head
        self.config, self.name = self.model.config, type(whole).__name__
        self._supports_sdpa = getattr(whole, "_supports_sdpa", True)

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights."""
        made: torch.dtype = self.model.dtype
        return made

    def set_attn_implementation(self, name: str) -> None:
        """As a model of transformers."""
        self.model.set_attn_implementation(name)

    def set_experts_implementation(self, name: str) -> None:
        """As a model of transformers."""
        self.model.set_experts_implementation(name)

    def get_output_embeddings(self) -> nn.Module:
        """As a model of transformers."""
        return self.lm_head

    def forward(
        self, input_ids: Tensor, position_ids: Tensor | None = None, cache: Any = None, use_cache: bool | None = None
    ) -> SimpleNamespace:  # fmt: skip
        """The logits and the cache, as a causal language model of transformers gives them."""
        given = {"input_ids": input_ids, "position_ids": position_ids, "use_cache": use_cache, CACHE: cache}
        made = self.model(**given)
        return SimpleNamespace(logits=self.lm_head(made.last_hidden_state), cache=getattr(made, CACHE))


def text_part(whole: Any) -> TextPart:
    """The language model of a larger model, of the same modules; the larger model is not changed.

    It is of the class that transformers has for it, or `WithHead` where that class changes the logits: Aya Vision
    leaves out the scale of Cohere's.

    Raises:
        LanguageModelError: no part has the configuration of the text, or the part alone computes something else.
    """
    name, text = type(whole).__name__, whole.config.get_text_config(decoder=True)
    made: nn.Module
    for made in _candidates(whole, text, name):
        if unfilled := sorted(key for key, weight in made.named_parameters() if weight.is_meta):
            raise LanguageModelError(
                f"{name} has no weights for {', '.join(unfilled[:3])} of its language model, {type(made).__name__}"
            )
        difference = _difference(whole, made, name)
        if difference <= _TOLERANCE:
            break
    else:
        raise LanguageModelError(
            f"the language model inside {name} does not compute the logits of the whole model for a text: they differ "
            f"by {difference:.2g} of the largest"
        )
    kept = {id(weight) for weight in made.parameters()}
    prefixes = Counter(
        ".".join(key.split(".")[:2]) for key, weight in whole.named_parameters() if id(weight) not in kept
    )
    return TextPart(made.eval(), ", ".join(f"{key} ({count} weights)" for key, count in sorted(prefixes.items())))


def _candidates(whole: Any, text: Any, name: str) -> Iterator[nn.Module]:
    """The language models that the parts of a whole one make.

    Raises:
        LanguageModelError: there is none.
    """
    classes = classes_of(CAUSAL, {"model_type": text.model_type})
    own = [module for module in whole.modules() if type(module) in classes and module.config is text]
    if own:
        yield own[0]
        return
    decoders = [
        module for module in whole.modules()
        if getattr(module, "config", None) is text and hasattr(module, "get_input_embeddings") and module is not whole
    ]  # fmt: skip
    head = whole.get_output_embeddings()
    if not decoders or head is None:
        raise LanguageModelError(f"{name} has no part that is a language model of type {text.model_type!r}")
    if classes:
        with torch.device("meta"):
            made: Any = classes[0](copy.deepcopy(text))
        if type(getattr(made, made.base_model_prefix)) is type(decoders[0]):
            setattr(made, made.base_model_prefix, decoders[0])
            made.set_output_embeddings(head)
            yield made
    yield WithHead(decoders[0], head, whole)


def _difference(whole: Any, made: Any, name: str) -> float:
    """The largest difference of the logits of a whole model and its language model, as a part of the largest logit.

    Raises:
        LanguageModelError: one of them does not run on a text.
    """
    special = {value for key, value in whole.config.to_dict().items() if key.endswith(("_token_id", "_token_index"))}
    words = [token for token in range(1, made.config.vocab_size) if token not in special]
    tokens = torch.tensor([words[:_TOKENS]])
    mode = whole.training
    try:
        with torch.no_grad():
            wanted = whole.eval()(input_ids=tokens).logits.float()
            given = made.eval()(input_ids=tokens).logits.float()
    except Exception as error:  # the code of a model can raise anything
        raise LanguageModelError(f"{name} cannot be called with a text alone: {reason_of(error)}") from error
    finally:
        whole.train(mode)
    return float((given - wanted).abs().max() / wanted.abs().max())
