"""Embeddings of sentences and scores of rerankers, with the pooling and the heads that the folder describes.

    sentence_embedding = main(input_ids, attention_mask)    # --task embedding
    score = main(input_ids, attention_mask)                 # --task rerank; with types of tokens also token_type_ids

An embedding model has a `modules.json` of sentence-transformers: a model of transformers, pooling, perhaps dense layers
and a normalisation. A reranker is a sequence classifier with one label, or a causal language model that answers yes or
no, as Qwen3-Reranker; the head then is the difference of the two words' rows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

from patcomp.errors import PatcompError, reason_of
from patcomp_models.checkpoints.tokenizers import tokenizing
from patcomp_models.checkpoints.untrusted import inside, object_in, tensors_in, value_in
from patcomp_models.tasks.entries import EXAMPLE_LENGTH, Entry, texts

SENTENCE_EMBEDDING, SENTENCE_SCORE = "sentence_embedding", "score"
_MODES = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")


# ---- embeddings --------------------------------------------------------------------------------------


class Pooling(nn.Module):
    """The embeddings of the tokens that the mask has, as one vector; several modes are joined.

    Args:
        modes: names of sentence-transformers without `pooling_mode_`.
    """

    def __init__(self, modes: tuple[str, ...]):
        super().__init__()
        self.modes = modes

    def forward(self, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """(1, width * modes), of float32.

        Args:
            hidden: (1, n, width).
            attention_mask: (1, n) of integers, 1 for tokens and 0 for padding.
        """
        hidden, mask = hidden.float(), attention_mask.float().unsqueeze(-1)
        return torch.cat([self._pooled(mode, hidden, mask) for mode in self.modes], 1)

    def _pooled(self, mode: str, hidden: Tensor, mask: Tensor) -> Tensor:
        if mode == "cls_token":
            return hidden[:, 0]
        if mode == "lasttoken":
            return last_token(hidden, mask)
        if mode == "max_tokens":
            return hidden.masked_fill(mask == 0, -1e9).amax(1)
        if mode == "weightedmean_tokens":
            mask = mask * torch.arange(1, hidden.shape[1] + 1, dtype=mask.dtype)[None, :, None]
        count = mask.sum(1).clamp(min=1e-9)
        return (hidden * mask).sum(1) / (count.sqrt() if mode == "mean_sqrt_len_tokens" else count)


def last_token(hidden: Tensor, mask: Tensor) -> Tensor:
    """The last token that the mask, (1, n, 1), has."""
    places = torch.arange(1, hidden.shape[1] + 1, dtype=torch.int32)[None, :, None]
    last = (places * (mask != 0)).argmax(1, keepdim=True).expand(-1, 1, hidden.shape[-1])
    return hidden.gather(1, last).squeeze(1)


class Sentence(nn.Module):
    """The embedding of a text.

    Args:
        model: of transformers, which gives `last_hidden_state`.
        pooling: from its result to a vector.
        after: what follows: dense layers and the normalisation.
    """

    def __init__(self, model: Any, pooling: Pooling, after: list[nn.Module]):
        super().__init__()
        self.model, self.pooling, self.after = model, pooling, nn.Sequential(*after)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.model(input_ids=input_ids, attention_mask=attention_mask, **_no_cache(self.model))
        made: Tensor = self.after(self.pooling(hidden.last_hidden_state, attention_mask))
        return made.to(self.model.dtype)


class Normalize(nn.Module):
    """A vector of length one."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.normalize(x, p=2.0, dim=1)


def embedding(model: Any, folder: Path) -> list[Entry]:
    """The embedding of a text of any length, in the form of sentence-transformers.

    Raises:
        PatcompError: `modules.json` is missing, or has a module or a mode that is not known.
    """
    file = folder / "modules.json"
    if not file.is_file():
        raise PatcompError(
            f"{str(folder)!r} has no modules.json, so its pooling is not known; give the folder as "
            "sentence-transformers saves it"
        )
    pooling, after = None, list[nn.Module]()
    for kind, place in _modules(file):
        if kind == "Transformer" and pooling is None:
            continue
        if kind == "Pooling" and pooling is None:
            pooling = Pooling(_modes(_read(place / "config.json"), place))
        elif kind == "Dense" and pooling is not None:
            after += _dense(_read(place / "config.json"), place)
        elif kind == "Normalize" and pooling is not None:
            after.append(Normalize())
        else:
            raise PatcompError(f"{str(file)!r} has the module {kind!r} there, which is not known")
    if pooling is None:
        raise PatcompError(f"{str(file)!r} has no pooling, so it describes no embedding of a whole text")
    return [_entry(Sentence(model, pooling, after), model, folder, SENTENCE_EMBEDDING)]


def _modes(config: dict[str, Any], place: Path) -> tuple[str, ...]:
    """The modes of pooling: flags, or in newer files one name or several."""
    given = config.get("pooling_mode")
    if isinstance(given, str | list):
        short = {mode.removesuffix("_tokens").removesuffix("_token"): mode for mode in _MODES}
        names = [given] if isinstance(given, str) else [str(each) for each in given]
        chosen = [short.get(name, name) for name in names]
    else:
        flags = {key.removeprefix("pooling_mode_"): value for key, value in config.items() if "pooling_mode_" in key}
        chosen = [mode for mode in (*_MODES, *flags) if flags.pop(mode, False)]
    if not chosen or (unknown := [mode for mode in chosen if mode not in _MODES]):
        what = f"the mode {unknown[0]!r}, which is not known" if chosen else "no mode of pooling"
        raise PatcompError(f"{str(place / 'config.json')!r} has {what}; there are {', '.join(_MODES)}")
    if config.get("include_prompt") is False:
        raise PatcompError(
            f"{str(place / 'config.json')!r} leaves the prompt out of the pooling (include_prompt), and the function "
            "does not know its length"
        )
    return tuple(chosen)


_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "Identity": nn.Identity, "Tanh": nn.Tanh, "ReLU": nn.ReLU, "GELU": nn.GELU, "Sigmoid": nn.Sigmoid, "SiLU": nn.SiLU,
}  # fmt: skip


def _activation(name: object, file: Path) -> nn.Module:
    """A module of PyTorch by the path that sentence-transformers writes."""
    made = _ACTIVATIONS.get(str(name).rpartition(".")[2])
    if made is None:
        raise PatcompError(f"{str(file)!r} has the activation {name}, which is not known")
    return made()


def _dense(config: dict[str, Any], place: Path) -> list[nn.Module]:
    """A linear layer and its activation; it computes in float32, as the pooling."""
    from safetensors import SafetensorError

    try:
        with torch.device("meta"):  # the configuration alone takes no memory
            layer = nn.Linear(config["in_features"], config["out_features"], bias=config.get("bias", True))
        weights = tensors_in(place / "model.safetensors")
        names = list(weights.keys())
        held = {name.removeprefix("linear."): weights.get_tensor(name).float() for name in names}
        layer.load_state_dict(held, assign=True)
    except (SafetensorError, OSError, RuntimeError, LookupError, TypeError) as error:
        raise PatcompError(f"{str(place)!r} has no weights of its dense layer: {reason_of(error)}") from error
    return [layer, _activation(config.get("activation_function", "Tanh"), place / "config.json")]


# ---- rerankers ---------------------------------------------------------------------------------------


class Classified(nn.Module):
    """The score of a query and a document by a classifier with one label."""

    def __init__(self, model: Any, activation: nn.Module):
        super().__init__()
        self.model, self.activation = model, activation

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        logits = self.model(input_ids=input_ids, attention_mask=attention_mask, **types).logits
        made: Tensor = self.activation(logits[:, 0])
        return made


class Answered(nn.Module):
    """How probable the answer is yes, of the two answers: `sigmoid(yes - no)` of their logits after the last token.

    Args:
        model: a causal language model.
        yes, no: the tokens.
    """

    def __init__(self, model: Any, yes: int, no: int):
        super().__init__()
        self.decoder: Any = getattr(model, model.base_model_prefix)
        head = model.get_output_embeddings()
        self.head = nn.Linear(head.in_features, 1, bias=head.bias is not None, dtype=torch.float32)
        with torch.no_grad():
            self.head.weight.copy_((head.weight[yes].float() - head.weight[no].float())[None])
            if head.bias is not None:
                self.head.bias.copy_((head.bias[yes].float() - head.bias[no].float())[None])

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.decoder(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
        made: Tensor = self.head(last_token(hidden, attention_mask.unsqueeze(-1)).float())[:, 0]
        return torch.sigmoid(made).to(hidden.dtype)


def rerank(model: Any, folder: Path) -> list[Entry]:
    """The score of a query and a document in one text, whose form is the model's own.

    Raises:
        PatcompError: the classifier has several labels, the words of the answers are no tokens, or the model's logits
            are no product of its head alone.
    """
    if hasattr(model.config, "num_labels") and type(model).__name__.endswith("ForSequenceClassification"):
        if model.config.num_labels != 1:
            raise PatcompError(
                f"{str(folder)!r} holds a classifier with {model.config.num_labels} labels, and a reranker has one; "
                "`patcomp convert` without --task gives its logits"
            )
        told = _read(folder / "config.json")
        name = (told.get("sentence_transformers") or {}).get("activation_fn") or told.get(
            "sbert_ce_default_activation_function", "Sigmoid"
        )
        classified = Classified(model, _activation(name, folder / "config.json"))
        return [_entry(classified, model, folder, SENTENCE_SCORE, pairs=True)]
    yes, no = _answers(folder)
    answered = Answered(model, yes, no)
    example = texts(model, 4)
    with torch.no_grad():
        logits = model(**example).logits[:, -1].float()
        wanted, given = torch.sigmoid(logits[:, yes] - logits[:, no]), answered(**example).float()
    if not float((wanted - given).abs().max()) <= 0.01:
        raise PatcompError(
            f"{type(model).__name__} changes the products of its head, so that the answers yes and no alone do not "
            "give the score; export it by FILE.py:FUNCTION"
        )
    return [_entry(answered, model, folder, SENTENCE_SCORE)]


def _answers(folder: Path) -> tuple[int, int]:
    """The tokens of yes and no: those of sentence-transformers' file, or the words of the tokenizer."""
    if (folder / "modules.json").is_file():
        for _, place in _modules(folder / "modules.json"):
            config = _read(place / "config.json") if place != folder and (place / "config.json").is_file() else {}
            if "true_token_id" in config:
                yes, no = (config.get(key) for key in ("true_token_id", "false_token_id"))
                if not isinstance(yes, int) or not isinstance(no, int) or min(yes, no) < 0:
                    raise PatcompError(f"{str(place)!r} has no two tokens for yes and no: {yes!r} and {no!r}")
                return yes, no
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    with tokenizing(f"tokenizers cannot read {str(file)!r}"):
        words = Tokenizer.from_file(str(file)) if file.is_file() else None
    yes, no = (words.token_to_id(word) if words is not None else None for word in ("yes", "no"))
    if yes is None or no is None:
        raise PatcompError(
            f"{str(folder)!r} has no tokens 'yes' and 'no' in a tokenizer.json, so it is no reranker that answers"
        )
    return yes, no


# ---- both --------------------------------------------------------------------------------------------


def _entry(module: nn.Module, model: Any, folder: Path, output: str, *, pairs: bool = False) -> Entry:
    longest = getattr(model.config, "max_position_embeddings", None) or 512
    told = folder / "sentence_bert_config.json"
    longest = (_read(told).get("max_seq_length") if told.is_file() else None) or longest
    if not isinstance(longest, int) or not 2 < longest < 1 << 31:
        raise PatcompError(f"{str(folder)!r} takes texts of {longest!r} tokens, and must take a number above 2")
    length = Dim("length", min=2, max=longest)
    inputs = texts(model, min(EXAMPLE_LENGTH, longest), pairs=pairs)
    return Entry("main", module.eval(), inputs, (output,), {name: {1: length} for name in inputs})


def _no_cache(model: Any) -> dict[str, bool]:
    """The option that keeps a decoder from making a cache."""
    return {"use_cache": False} if hasattr(model.config, "use_cache") else {}


def _read(file: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        PatcompError: it is missing, or holds something else.
    """
    try:
        return object_in(file)
    except OSError as error:
        raise PatcompError(f"{str(file)!r} is missing: {reason_of(error)}") from error


def _modules(file: Path) -> list[tuple[str, Path]]:
    """The kinds and folders of the modules that `modules.json` lists.

    Raises:
        PatcompError: it holds something else, or a folder elsewhere.
    """
    listed = value_in(file)
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise PatcompError(f"{str(file)!r} must hold a list of modules")
    return [
        (str(each.get("type", "")).rpartition(".")[2],
         inside(file.parent, each["path"], f"a path of {str(file)!r}") if each.get("path") else file.parent)
        for each in listed
    ]  # fmt: skip
