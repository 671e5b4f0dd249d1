"""Heads of a checkpoint that foresee several tokens (multi-token prediction), which models of transformers do not have.

A head takes the hidden state of a token and the next token, and foresees the one behind (DeepSeek-AI 2024,
arXiv:2412.19437, section 2.2): both are normalised, joined and projected, and go through one layer of the model's kind.
Table of embeddings and head of the logits are the model's. So a head is a model of one layer whose embeddings are made
of two tensors.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from patcomp.errors import reason_of
from patcomp_models.checkpoints.left_out import head_place, heads_in
from patcomp_models.checkpoints.loading import DTYPES, check_weights, without_weights
from patcomp_models.checkpoints.quantized.formats.base import Format, Weights
from patcomp_models.checkpoints.quantized.reading import fill
from patcomp_models.checkpoints.untrusted import tensors_in
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.contract import HIDDEN
from patcomp_models.language.decoder import Decoder, NewTokens

HEAD = "mtp"
"""Stands for such a head in place of the folder of a smaller model."""

_PARTS = {
    "enorm": "embedding_norm", "hnorm": "hidden_norm", "eh_proj": "projection", "shared_head.norm": "model.norm",
    "shared_head.head": "lm_head", "embed_tokens": "model.embed_tokens",
    "pre_fc_norm_embedding": "embedding_norm", "pre_fc_norm_hidden": "hidden_norm", "fc": "projection",
    "norm": "model.norm",
}  # fmt: skip
"""The parts of a head that are not in its layer, by the names of DeepSeek and GLM, and of Qwen."""


class Floats(Format):
    """Weights that are not in few bits, in files of safetensors."""

    name = "floats"

    @classmethod
    def of(cls, config: Any) -> Self | None:
        return None

    def weights(self, files: Sequence[Path]) -> Weights:
        opened = {file: tensors_in(file) for file in files}
        return {name: partial(each.get_tensor, name) for each in opened.values() for name in each.keys()}  # noqa: SIM118


def load_head(
    main: Any, files: Sequence[Path], form: Format | None, dtype: str, place: str, depth: int = 0
) -> nn.Module:
    """A head of a checkpoint that foresees tokens, as a model of one layer with three parts more.

    Args:
        main: the language model of the checkpoint; its table of embeddings and its head are shared.
        files: of the weights.
        form: how weights are stored, if they are in few bits.
        dtype: of the weights.
        place: of the checkpoint, for errors.
        depth: how many heads are in front of it; it takes the hidden state of the last of them.

    Raises:
        LanguageModelError: the checkpoint has no such head, or one of a form that is not known.
    """
    form = form or Floats()
    weights = form.weights(files)
    heads = heads_in(weights)
    if not heads:
        raise LanguageModelError(
            f"{place!r} has no head that foresees several tokens (MTP), whose weights are named mtp.* or "
            "model.layers.N.eh_proj; leave draft='mtp' (--draft mtp) out, or give the folder of a smaller model"
        )
    own = {own_name(name): weights[name] for name in heads[depth]}
    has_experts = any(".experts." in name for name in own)
    config = _of_one_layer(main.config, has_experts=has_experts)
    import transformers

    try:
        head: Any = without_weights(lambda: transformers.AutoModelForCausalLM.from_config(config, dtype=DTYPES[dtype]))
        norm, width = head.eval().model.norm, config.hidden_size
    except Exception as error:  # the code of a model can raise anything
        raise LanguageModelError(
            f"{type(main).__name__} cannot be made of one layer, the head of {place!r} that foresees several tokens "
            f"(MTP): {reason_of(error)}"
        ) from error
    head.embedding_norm, head.hidden_norm = copy.deepcopy(norm), copy.deepcopy(norm)
    head.projection = nn.Linear(2 * width, width, bias=False, device="meta", dtype=DTYPES[dtype])
    for name, shared, share in (
        ("model.embed_tokens.weight", main.get_input_embeddings(), head.set_input_embeddings),
        ("lm_head.weight", main.get_output_embeddings(), head.set_output_embeddings),
    ):
        if name not in own or _is_weight_of(own[name](), shared):
            own.pop(name, None)
            share(shared)
    fill(head, place, form, own, DTYPES[dtype])
    check_weights(head, rounded=True)
    return head


def own_name(name: str) -> str:
    """The name in a model of one layer of a head's weight in a checkpoint.

    Raises:
        LanguageModelError: the form of the head is not known.
    """
    if (place := head_place(name)) is not None:
        part, _, kind = place.rest.rpartition(".")
        if part in _PARTS:
            return f"{_PARTS[part]}.{kind}"
        if place.is_in_layer:
            return f"model.layers.0.{place.rest}"
    raise LanguageModelError(
        f"the checkpoint has a head that foresees several tokens (MTP) of a form that is not known, with the weight "
        f"{name}; leave draft='mtp' (--draft mtp) out"
    )


def _of_one_layer(config: Any, *, has_experts: bool) -> Any:
    """The configuration of a model with one layer of attention."""
    made = copy.deepcopy(config)
    changes: dict[str, Any] = {
        "num_hidden_layers": 1, "layer_types": ["full_attention"], "tie_word_embeddings": False,
        "mlp_layer_types": ["sparse" if has_experts else "dense"], "first_k_dense_replace": 0 if has_experts else 1,
        "mlp_only_layers": [] if has_experts else [0], "decoder_sparse_step": 1,
    }  # fmt: skip
    for name, value in changes.items():
        if getattr(made, name, None) is not None:
            setattr(made, name, value)
    return made


def _is_weight_of(part: Any, module: Any) -> bool:
    """Whether a module has this weight; a checkpoint may have a table of embeddings twice."""
    own = getattr(module, "weight", None)
    return isinstance(part, Tensor) and isinstance(own, Tensor) and torch.equal(part.to(own.dtype), own)


class HeadDecoder(Decoder):
    """A head that foresees tokens, with its cache as arguments.

        logits, hidden = decoder(input_ids, position_ids, hidden, *states)

    The hidden states are those of the tokens in front of `input_ids`. Its own hidden state takes the place of the
    model's where the head foresees a further token.

    Args:
        head: from `load_head`.
        dtype: as of `Decoder`.
    """

    further = (HIDDEN,)

    def __init__(self, head: Any, dtype: torch.dtype | None = None):
        super().__init__(head, hidden=True, dtype=dtype)

    def further_examples(self, new: int) -> tuple[Tensor, ...]:
        return (torch.zeros(1, new, self.model.config.hidden_size, dtype=self.dtype),)

    def _logits(self, call: NewTokens) -> Tensor:
        return self.called(call, inputs_embeds=self.embeddings(call.new, *call.further))

    def embeddings(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        """What the layer of the head takes, (1, q, width).

        Args:
            tokens: (1, q).
            hidden: the hidden states of the tokens in front of them, (1, q, width).
        """
        return self.joined(self.model.get_input_embeddings()(tokens), hidden)

    def joined(self, embeddings: Tensor, hidden: Tensor) -> Tensor:
        """What the layer of the head takes, from embeddings of the model, (1, q, width) all."""
        head = self.model
        made: Tensor = head.projection(torch.cat([head.embedding_norm(embeddings), head.hidden_norm(hidden)], -1))
        return made
