"""What the options of a conversion name: checkpoints, a tokenizer, a prompt, a text, schemes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from patcomp.compression import CompressionRequest
from patcomp_models.bundle_folders.unfinished import request_of
from patcomp_models.checkpoints.adapters import Adapter, read_adapter
from patcomp_models.checkpoints.agreement import Allowed
from patcomp_models.checkpoints.loading import DTYPES
from patcomp_models.checkpoints.precision import given_names
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.asked import prompt_of, tokens_of
from patcomp_models.language.entry_points import EntryPoints
from patcomp_models.language.multi_token import HEAD
from patcomp_models.language.sources import LanguageSource, source_of
from patcomp_models.language.writing import chosen_tokenizer
from patcomp_models.options import BundleOptions, LanguageOptions, Progress


@dataclass(frozen=True)
class LanguageRequest:
    """A conversion of a language model, before anything is loaded.

    Attributes:
        options: of the user.
        source: the checkpoint or the model.
        draft: the smaller model.
        compression: how small the weights become.
        tokenizer: of transformers, or None.
        text: the tokens by which weights are rounded.
        prompt: the tokens to compare program and model on; none for the built-in ones.
        adapters: those that get functions of their own, by name.
    """

    options: LanguageOptions
    source: LanguageSource
    draft: LanguageSource | None
    compression: CompressionRequest | None
    tokenizer: Any
    text: list[int] | None
    prompt: list[int]
    adapters: Mapping[str, Adapter]

    @classmethod
    def of(cls, options: LanguageOptions) -> Self:
        """The request of options.

        Raises:
            LanguageModelError: an option does not fit another one, or its value; the checkpoint is incomplete.
        """
        _check(options)
        compression = None if options.compress is None else CompressionRequest.of(options.compress, options.target)
        rounds = compression is not None or options.cache is not None
        if options.calibrate is not None and not rounds:
            raise LanguageModelError("calibrate= goes with compress= or cache='int8'")
        _check_functions(options)
        check_place(options)
        step, trusted = step_of(options), options.trust_remote_code
        source = source_of(options.folder_or_model, step, trust_remote_code=trusted)
        source = replace(source, adapters=(*source.adapters, *merged_adapters(options.adapter)))
        adapters = named_adapters(options.adapters)
        if takes_head(options) and source.folder is None:
            raise LanguageModelError(
                f"draft={HEAD!r} goes with the folder of a checkpoint: transformers does not load heads that foresee "
                "tokens"
            )
        draft = None
        if options.draft is not None and not takes_head(options):
            draft = source_of(options.draft, step, trust_remote_code=trusted)
        allowed_by(options, source.folder)
        tokenizer = chosen_tokenizer(options.tokenizer, source.folder, trust_remote_code=trusted)
        text = None if options.calibrate is None else tokens_of(options.calibrate, tokenizer)
        prompt = prompt_of(options.check, tokenizer, options.max_context)
        return cls(options, source, draft, compression, tokenizer, text, prompt, adapters)

    @property
    def points(self) -> EntryPoints:
        """Which functions the bundle has."""
        return _points(self.options)

    @property
    def step(self) -> Progress:
        """A context manager around each step."""
        return step_of(self.options)

    @property
    def dtype(self) -> Any:
        """The type of the weights, as PyTorch's."""
        return DTYPES[self.options.dtype]

    @property
    def word(self) -> str | None:
        """How small the weights are, for `metadata.json`."""
        form, asked = self.source.form, self.compression
        parts = [form.name if form is not None else "", asked.text if asked is not None else ""]
        return ", ".join(filter(None, parts)) or None

    @property
    def key(self) -> str:
        """What determines the bundle; an interrupted conversion with the same key goes on."""
        own, folder = self.options, self.source.folder
        # a later run does not know an object again
        is_object = own.tokenizer not in (None, False) or own.catalog or (self.draft and self.draft.folder is None)
        if folder is None or is_object:
            return uuid4().hex
        given = {name: value for name, value in vars(own).items() if name not in _NO_PART}
        found = {
            "compress": repr(self.compression), "calibrate": self.text, "name": own.name or self.source.name,
            "allowed": astuple(Allowed.of(own.allow_missing, own.allow_unexpected)),
            "float32": given_names(own.float32), "adapter": [share for _, share in self.source.adapters],
            "adapters": [
                request_of(each.folder, {"name": name})
                for name, each in (*self.adapters.items(), *(("", merged) for merged, _ in self.source.adapters))
            ],
            "draft": request_of(self.draft.folder, {}) if self.draft and self.draft.folder else own.draft,
        }  # fmt: skip
        return request_of(folder, {**given, **found})


_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


def merged_adapters(given: str | Path | Sequence[str | Path]) -> list[tuple[Adapter, float]]:
    """The adapters of the option `adapter`, `FOLDER` or `0.5=FOLDER` each.

    Raises:
        LanguageModelError: one cannot be read.
    """
    found = []
    for each in [given] if isinstance(given, str | Path) else given:
        share, equals, folder = str(each).partition("=")
        has_share = bool(equals) and _NUMBER.fullmatch(share) is not None
        found.append((read_adapter(Path(folder if has_share else each)), float(share) if has_share else 1.0))
    return found


def named_adapters(given: str | Mapping[str, str | Path] | Sequence[str]) -> dict[str, Adapter]:
    """The adapters of the option `adapters`, by name.

    Raises:
        LanguageModelError: a name is missing, no word, or there twice; or an adapter cannot be read.
    """
    listed = given.split(",") if isinstance(given, str) else given
    pairs = [*given.items()] if isinstance(given, Mapping) else [each.partition("=")[::2] for each in listed]
    names = [name for name, _ in pairs]
    for name, folder in pairs:
        if not _WORD.fullmatch(name) or not str(folder) or names.count(name) > 1:
            raise LanguageModelError(
                f"adapters= takes NAME=FOLDER with a name of letters and digits for each adapter, got {name!r}"
            )
    return {name: read_adapter(Path(folder)) for name, folder in pairs}


_NO_PART = ("folder_or_model", "out", "progress", "writer", "allow_missing", "allow_unexpected", "catalog")
"""The options that are no part of what determines a bundle, or stand in it in another form."""


def takes_head(options: LanguageOptions) -> bool:
    """Whether the checkpoint's head that foresees tokens is converted, too."""
    return isinstance(options.draft, str) and options.draft == HEAD


def step_of(options: BundleOptions) -> Progress:
    """A context manager around each step: the user's, or one that does nothing."""
    return options.progress or (lambda what: nullcontext())


def check_place(options: BundleOptions) -> None:
    """Check that nothing is where the bundle is to be.

    Raises:
        LanguageModelError: something is.
    """
    if (place := Path(options.out)).exists():
        raise LanguageModelError(f"{str(place)!r} exists; choose another folder for the bundle, or move it away")


def check_dtype(options: BundleOptions) -> None:
    """Check the type of the weights.

    Raises:
        LanguageModelError: there is no such type.
    """
    if options.dtype not in DTYPES:
        raise LanguageModelError(f"dtype is one of {', '.join(DTYPES)}, got {options.dtype!r}")


def allowed_by(options: BundleOptions, folder: Path | None) -> Allowed:
    """How the weights of a folder may differ from the model's.

    Raises:
        LanguageModelError: there is no folder.
    """
    allowed = Allowed.of(options.allow_missing, options.allow_unexpected)
    if folder is None and (allowed.missing or allowed.unexpected):
        raise LanguageModelError("allow_missing= and allow_unexpected= go with the folder of a checkpoint")
    return allowed


def _points(options: LanguageOptions) -> EntryPoints:
    return EntryPoints(options.prefill, options.verify, options.hidden or takes_head(options))


def _check(options: LanguageOptions) -> None:
    """Check the target and the types."""
    if options.target not in ("gpu", "neural_engine"):
        raise LanguageModelError(
            f"the target {options.target!r} has no form of language models; there are 'gpu' and 'neural_engine'"
        )
    if options.target == "neural_engine" and options.dtype != "float16":
        raise LanguageModelError(f"the form for the Neural Engine is of float16, got dtype={options.dtype!r}")
    check_dtype(options)
    if given_names(options.float32) and (options.dtype == "float32" or options.target == "neural_engine"):
        raise LanguageModelError("float32= goes with dtype='float16' or 'bfloat16', and with target='gpu'")


def _check_functions(options: LanguageOptions) -> None:
    """Check the options about the functions of the bundle and what they take."""
    is_static, points = options.target == "neural_engine", _points(options)
    points.check(options.max_context)
    other = points != EntryPoints() or options.draft is not None or options.window_caches or options.absorb_latents
    if is_static and other:
        raise LanguageModelError(
            "prefill=, verify=, hidden=, draft=, window_caches= and absorb_latents= go with target='gpu'; the Neural "
            "Engine's form has functions of its own"
        )
    if options.adapters and (is_static or points != EntryPoints() or options.draft is not None or options.cache
                             or options.embeddings == "outside"):  # fmt: skip
        raise LanguageModelError(
            "adapters= (--adapters) goes with target='gpu', and without prefill=, verify=, hidden=, draft=, cache= and "
            "embeddings='outside'; adapter= (--adapter) merges an adapter with any of them"
        )
    if options.batch < 1 or (options.batch > 1 and (other or is_static or options.adapters or options.cache
                             or options.calibrate is not None or options.embeddings == "outside")):  # fmt: skip
        raise LanguageModelError(
            "batch= (--batch) is 1 or more, and more than 1 goes with target='gpu', and without prefill=, verify=, "
            "hidden=, draft=, window_caches=, absorb_latents=, adapters=, cache=, calibrate= and embeddings='outside'"
        )
    if options.cache not in (None, "int8"):
        raise LanguageModelError(f"cache= is 'int8' or left out, got {options.cache!r}")
    others = is_static or options.window_caches or options.absorb_latents or options.embeddings == "outside"
    others |= points.hidden
    if options.cache == "int8" and (others or options.calibrate is None):
        raise LanguageModelError(
            "cache='int8' (--cache int8) goes with target='gpu' and calibrate= (--calibrate), a text by which keys and "
            "values are scaled; and without window_caches=, absorb_latents=, hidden=, draft='mtp' and "
            "embeddings='outside', which have no form with int8 caches here"
        )
    is_outside = options.embeddings == "outside"
    known = options.embeddings in ("inside", "outside")
    if not known or (is_outside and is_static):
        raise LanguageModelError("embeddings= is 'inside' or 'outside', and 'outside' goes with target='gpu'")
