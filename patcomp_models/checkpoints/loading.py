"""Load a causal language model from a folder, or take one that is loaded."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from patcomp.errors import reason_of
from patcomp_models.checkpoints.agreement import (
    STRICT,
    Allowed,
    check_weight_names,
    first_names,
    left_over,
    say_untied,
    wrapper_of,
)
from patcomp_models.checkpoints.folders import CAUSAL, weight_files
from patcomp_models.checkpoints.left_out import foreseeing, names_in
from patcomp_models.checkpoints.precision import set_types
from patcomp_models.checkpoints.quantized.formats import format_of
from patcomp_models.checkpoints.quantized.formats.base import Format
from patcomp_models.checkpoints.quantized.reading import fill
from patcomp_models.checkpoints.room import check_room
from patcomp_models.checkpoints.untrusted import bytes_of, object_in, tensors_in
from patcomp_models.errors import LanguageModelError

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


def check_configuration(folder: Path, *, trust_remote_code: bool) -> None:
    """Check that transformers reads the configuration of a folder.

    Raises:
        LanguageModelError: it does not.
    """
    from transformers import AutoConfig

    try:
        AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trust_remote_code)
    except Exception as error:  # a configuration can make transformers raise anything
        raise LanguageModelError(
            f"transformers cannot read {str(folder / 'config.json')!r}: {reason_of(error)}"
        ) from error


def loader_of(auto: str) -> Any:
    """The class that loads a model: one of transformers, or with its package, `chronos.Chronos2Model`.

    Raises:
        LanguageModelError: the package is not installed, or has no such class.
    """
    package, _, name = auto.rpartition(".")
    try:
        return getattr(import_module(package or "transformers"), name)
    except (ImportError, AttributeError) as error:
        raise LanguageModelError(f"{name} needs the package {package}, which cannot be used: {error}") from error


def classes_of(auto: str, config: Mapping[str, Any]) -> list[type]:
    """The classes that a class, such as `AutoModel`, loads for the content of a `config.json`; one of models loads
    itself."""
    import transformers

    kind, loader = config.get("model_type"), loader_of(auto)
    if not isinstance(kind, str) or kind not in transformers.CONFIG_MAPPING:
        return []
    settings = transformers.CONFIG_MAPPING[kind]
    if not hasattr(loader, "_model_mapping"):
        return [loader] if loader.config_class.model_type in (kind, "") else []
    found = loader._model_mapping.get(settings, [])
    return list(found) if isinstance(found, tuple | list) else [found]


def load_model(
    folder: Path, dtype: str, *, trust_remote_code: bool, allowed: Allowed = STRICT, expand: bool = False
) -> nn.Module:
    """The model of a checkpoint folder, in eval mode.

    Raises:
        LanguageModelError: transformers has no causal language model for it, or cannot load it; weights are missing,
            quantised, or too large for the type.
    """
    return loaded(CAUSAL, "as a causal language model", folder, dtype, trust_remote_code, allowed, expand)


def loaded(
    auto: str,
    purpose: str,
    folder: Path,
    dtype: str,
    trust_remote_code: bool,
    allowed: Allowed = STRICT,
    expand: bool = False,
    part: str = "",
    config: Any = None,
    names: Mapping[str, str] | None = None,
    **options: Any,
) -> nn.Module:
    """A model of transformers, in eval mode, with the weights of a checkpoint and no others.

    Args:
        auto: the class of transformers that loads it.
        purpose: what it is loaded for, in an error's words.
        folder: of the checkpoint.
        dtype: of the weights.
        trust_remote_code: whether to run code of the folder.
        allowed: how its weights may differ from the model's.
        expand: whether weights become floats whose bits cannot be kept.
        part: finds what is in front of the names of the model's weights, if it is a part of the checkpoint's model.
        config: of the model, where transformers does not know the type of the folder's `config.json`.
        names: how the names of the checkpoint's weights become those of the model, by regular expressions.
        options: further ones of `from_pretrained`.

    Raises:
        LanguageModelError: transformers cannot load it; weights are missing, left over, of another shape, quantised,
            or too large for the type.
    """
    stated = object_in(folder / "config.json", LanguageModelError)
    check_room(
        folder, lambda: _by_configuration(loader_of(auto), folder, trust_remote_code, config), LanguageModelError
    )
    if (form := format_of(folder, stated)) is not None:
        if config is not None:
            raise LanguageModelError(
                f"the weights in {str(folder)!r} are in few bits ({form.name}), which is not read for models of this "
                "type; give the checkpoint of plain floats that it was made from"
            )
        if allowed != STRICT:
            raise LanguageModelError(
                f"the weights in {str(folder)!r} are in few bits ({form.name}), and all must be there; leave "
                "allow_missing= and allow_unexpected= out"
            )
        form = form.expanding() if expand else form
        return _in_few_bits(auto, purpose, folder, weight_files(folder, stated), form, dtype, trust_remote_code)
    reports: list[str] = []
    files = weight_files(folder, stated)
    stored = names_in(files, None)
    fronts = [re.escape(front) for front in [wrapper_of(stored)] if front] + ([part] if part else [])
    mapping = {f"^{front}": "" for front in fronts} | dict(names or {})
    try:
        with _reporting_to(reports), torch.random.fork_rng():
            torch.manual_seed(0)  # weights that may be missing are drawn, and equal in each conversion
            model, found = loader_of(auto).from_pretrained(
                folder,
                dtype=DTYPES[dtype],
                local_files_only=True,
                trust_remote_code=trust_remote_code,
                use_safetensors=True,
                ignore_mismatched_sizes=True,  # they are judged below, by name
                output_loading_info=True,
                **({"key_mapping": mapping} if mapping else {}),
                **{**_own_attention(loader_of(auto), folder, trust_remote_code, config), **options},
            )
    except Exception as error:  # a configuration can make transformers raise anything
        joined = _NOT_JOINED.findall("".join(reports))
        reason = f"parts of {first_names(joined)} are missing or have other shapes" if joined else reason_of(error)
        raise LanguageModelError(f"transformers cannot load {str(folder)!r} {purpose}: {reason}") from error
    shapes = {name: (tuple(stored), tuple(own)) for name, stored, own in found["mismatched_keys"]}
    unexpected = left_over(found["unexpected_keys"])
    if part:
        unexpected &= {re.sub(f"^{part}", "", name) for name in stored if re.match(part, name)}
    check_weight_names(folder, type(model).__name__, found["missing_keys"], unexpected, shapes, allowed)
    check_weights(model, rounded=_stored_types(files) != {_STORED[dtype]})
    say_untied(folder, model)
    return cast("nn.Module", model.eval())


def _in_few_bits(
    auto: str,
    purpose: str,
    folder: Path,
    files: Sequence[Path],
    form: Format,
    dtype: str,
    trust_remote_code: bool,
) -> nn.Module:
    """A model whose weights are stored in few bits, filled from their files."""
    try:
        empty = _empty(loader_of(auto), folder, DTYPES[dtype], trust_remote_code)
    except Exception as error:  # a configuration can make transformers raise anything
        raise LanguageModelError(f"transformers cannot load {str(folder)!r} {purpose}: {reason_of(error)}") from error
    place = files[0].resolve() if files[0].suffix == ".gguf" else folder
    weights = form.weights(files)
    front = wrapper_of(weights)
    weights = {name.removeprefix(front): each for name, each in weights.items()}
    heads = {*foreseeing(weights)}
    kept = {name: each for name, each in weights.items() if name not in heads}
    fill(empty, str(place), form, kept, DTYPES[dtype])
    form.finish(empty, files)
    check_weights(empty, rounded=True)
    return empty


def _empty(auto: Any, folder: Path, dtype: torch.dtype, trust_remote_code: bool) -> nn.Module:
    """The model of a folder without its weights."""
    return without_weights(lambda: _by_configuration(auto, folder, trust_remote_code, dtype=dtype).eval())


def _by_configuration(auto: Any, folder: Path, trust_remote_code: bool, config: Any = None, **options: Any) -> Any:
    """A model of plain floats by a configuration, by default that of a folder."""
    config = copy.deepcopy(config) or _configuration(auto, folder, trust_remote_code)
    _without_kernels(config)
    for key in ("quantization_config", "quantization", "compression_config"):
        vars(config).pop(key, None)
    if not hasattr(auto, "from_config"):  # a class of models, and none that finds one
        return auto._from_config(config, **options)
    return auto.from_config(config, trust_remote_code=trust_remote_code, **options)


def _configuration(auto: Any, folder: Path, trust_remote_code: bool) -> Any:
    """The configuration of a folder's model, or of the part of it that a class loads."""
    from transformers import AutoConfig

    options = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    config = AutoConfig.from_pretrained(folder, **options)
    own = None if hasattr(auto, "from_config") else auto.config_class
    return config if own is None or isinstance(config, own) else own.from_pretrained(folder, **options)


def _own_attention(auto: Any, folder: Path, trust_remote_code: bool, given: Any = None) -> dict[str, Any]:
    """The option `config` of `from_pretrained`: the one that is given, or the folder's without an attention
    implementation that may not be installed (flash_attention_2, for example). The results do not depend on it."""
    if given is not None:
        return {"config": given}
    if b"attn_implementation" not in bytes_of(folder / "config.json"):
        return {}
    config = _configuration(auto, folder, trust_remote_code)
    _without_kernels(config)
    return {"config": config}


def _without_kernels(config: Any) -> None:
    """Leave the implementation of attention to transformers, unless it is one that needs nothing installed."""
    if vars(config).get(_CHOSEN[0]) not in (None, "eager", "sdpa"):
        vars(config)[_CHOSEN[0]] = None
    for name in config.sub_configs:
        if (part := getattr(config, name, None)) is not None:
            _without_kernels(part)


def without_weights(make: Callable[[], Any]) -> nn.Module:
    """A model with parameters on the meta device, and real buffers. (No checkpoint has the frequencies of rotary
    embeddings, for example.)

    Args:
        make: makes the model.
    """
    with torch.device("meta"):
        model = make()
    for module in model.modules():
        empty = {name: buffer for name, buffer in module.named_buffers(recurse=False) if buffer.is_meta}
        for name, buffer in empty.items():
            setattr(module, name, torch.empty_like(buffer, device="cpu"))
        if empty:
            model._init_weights(module)
    return cast("nn.Module", model)


_NOT_JOINED = re.compile(r"^(\S+) *\| *(?:\x1b\[\d+m)?CONVERSION", re.MULTILINE)
"""Finds, in transformers' report, weights that it could not join from the checkpoint's, such as the weights of
experts."""


@contextmanager
def _reporting_to(reports: list[str]) -> Iterator[None]:
    """Keep the tables in which transformers reports missing weights, and show none: `check_names` says it in a line.
    Progress is not shown either, because the command shows its own."""
    from transformers.utils import logging as shown

    logger, has_bars = logging.getLogger("transformers.modeling_utils"), shown.is_progress_bar_enabled()

    def is_another(record: logging.LogRecord) -> bool:
        if is_report := "LOAD REPORT" in record.getMessage():
            reports.append(record.getMessage())
        return not is_report

    logger.addFilter(is_another)
    shown.disable_progress_bar()
    try:
        yield
    finally:
        logger.removeFilter(is_another)
        if has_bars:
            shown.enable_progress_bar()


_STORED = {"float16": "F16", "bfloat16": "BF16", "float32": "F32"}
"""The names of types in files of weights."""


def _stored_types(files: Iterable[Path]) -> set[str]:
    """The types of the weights in files."""
    found = set()
    for file in files:
        with tensors_in(file) as weights:
            found |= {weights.get_slice(key).get_dtype() for key in weights.keys()}  # noqa: SIM118
    return found


def check_weights(model: nn.Module, *, rounded: bool) -> None:
    """Check that weights are plain floats, and finite after they were rounded to another type.

    Raises:
        LanguageModelError: weights are quantised, or too large for their type.
    """
    for name, weight in model.named_parameters():
        if not weight.is_floating_point() or weight.dtype.itemsize == 1:
            raise LanguageModelError(
                f"the weights are quantised: {name} is {weight.dtype}; convert a checkpoint of plain floats"
            )
        if rounded and not bool(weight.isfinite().all()):
            raise LanguageModelError(
                f"{name} has numbers that {str(weight.dtype).removeprefix('torch.')} cannot hold; "
                "pass dtype='bfloat16', which has the range of float32"
            )


def in_dtype(model: nn.Module, dtype: str) -> nn.Module:
    """A model in eval mode whose weights have one type: itself if it is so, otherwise a copy.

    Raises:
        LanguageModelError: weights are quantised, or too large for the type.
    """
    check_weights(model, rounded=False)
    wanted = DTYPES[dtype]
    floats = {tensor.dtype for tensor in model.parameters() if tensor.is_floating_point()}
    if floats <= {wanted} and not model.training:
        return model
    made = copy.deepcopy(model).eval()
    set_types(made, wanted)
    check_weights(made, rounded=True)
    return made


def attention_of(model: Any) -> str:
    """The implementation of attention to export: PyTorch's, or the written-out one if the model has no other, was
    loaded with it, or has a softcap on its scores, which PyTorch's attention leaves out."""
    config = model.config
    is_written_out = (
        config._attn_implementation == "eager"
        or not all(getattr(part, "_supports_sdpa", True) for part in model.modules())
        or getattr(config.get_text_config(), "attn_logit_softcapping", None) is not None
    )
    return "eager" if is_written_out else "sdpa"


def experts_of(model: Any) -> str | None:
    """The implementation of experts to export: products of batches, because the others cannot be exported, or call
    an op of their own; None for a model without experts that can be chosen."""
    has_choice = _CHOSEN[1] in vars(model.config) and getattr(model, "_can_set_experts_implementation", bool)()
    return "batched_mm" if has_choice else None


@contextmanager
def export_implementations(model: Any) -> Iterator[None]:
    """The implementations of attention and of experts that a model is exported with; the own ones come back."""
    attention, experts = attention_of(model), experts_of(model)
    before = [(part, {name: vars(part)[name] for name in _CHOSEN if name in vars(part)}) for part in _configs(model)]
    try:
        model.set_attn_implementation(attention)
        if experts is not None:
            model.set_experts_implementation(experts)
        yield
    finally:
        for part, chosen in before:
            for name in _CHOSEN:
                vars(part).pop(name, None)
            vars(part).update(chosen)


_CHOSEN = ("_attn_implementation_internal", "_experts_implementation_internal")
"""Where a configuration of transformers keeps its implementations; setting them by name turns None into a default."""


def _configs(model: nn.Module) -> list[Any]:
    """The configurations of a model and of its parts, each once."""
    waiting = [module.config for module in model.modules() if hasattr(getattr(module, "config", None), "sub_configs")]
    found: dict[int, Any] = {}
    while waiting:
        config: Any = waiting.pop()
        if id(config) not in found:
            found[id(config)] = config
            parts = (getattr(config, name, None) for name in config.sub_configs)
            waiting += [part for part in parts if part is not None]
    return list(found.values())
