"""What small models of every class with a head become, by the tables of transformers' auto classes.

    python -m benchmarks.heads [--mapping IMAGE_CLASSIFICATION ...] [--type TYPE ...] [--build] [--into FILE.jsonl]

A model has the configuration of its type, with fewer layers and a sixteenth of each width, and random weights. It is
saved in a folder, converted, and compared with eager PyTorch on evaluator and runtime on random inputs of other sizes.
With `--build`, only the functions are made. `--into` writes a line for each class, and skips those that it has. A model
that is `not built` has sizes that do not fit each other when they are small, or needs a package that is not installed.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from patcomp.torchvision import declare_operators

_WIDTH = re.compile(
    r"hidden|embed|dim|channel|width|intermediate|ffn|d_model|d_kv|d_ff|d_inner|filter|projection|rank|size"
)
_NO_WIDTH = re.compile(
    r"vocab|image|patch|kernel|stride|window|crop|type|batch|chunk|block_size|pool|num_hidden|hidden_layers|"
    r"num_channels|in_channels|dimension|input_size|grid|frame|tubelet|spec_size|max_|num_|layers$|group|state_size"
)
_LAYERS = re.compile(r"(^|_)(num_hidden_layers|n_layers?|num_layers|encoder_layers|decoder_layers|num_blocks)$")
_DIVISOR = 16
_MOST = {"num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_queries": 20}


def shrunk(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a configuration with fewer layers, smaller widths and few tokens."""
    layers = next((settings[name] for name in settings if _LAYERS.search(name) and type(settings[name]) is int), 0)
    made = {}
    for name, value in settings.items():
        if isinstance(value, list) and len(value) == layers > 2 and name != "depths":
            kinds = [each for place, each in enumerate(value) if each not in value[:place]][:2]
            made[name] = (kinds * 2)[:2]  # one layer of each of two kinds
        elif name not in ("out_features", "out_indices", "stage_names"):
            made[name] = _small(name, value)
    return made


def _small(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return value if name in ("id2label", "label2id", "rope_parameters", "rope_scaling") else shrunk(value)
    if isinstance(value, list) and value and all(type(each) is int for each in value):
        if name == "depths":
            return [min(each, 2) for each in value]
        return value if _LAYERS.search(name) else [_small(name, each) for each in value]
    if type(value) is not int:
        return value
    if "vocab_size" in name:
        return min(value, 256)
    if name.endswith("token_id"):
        return value if value < 256 else value % 200 + 3
    if _LAYERS.search(name):
        return min(value, 2)
    if name in ("max_position_embeddings", "n_positions", "max_seq_len"):
        return value if value <= 128 else 128 + value % 64  # RoBERTa's 514 are 2 more than a power of two
    if name in _MOST:
        return min(value, _MOST[name])
    if value >= 64 and _WIDTH.search(name) and not _NO_WIDTH.search(name):
        return max(value // _DIVISOR, 8)
    return value


def classes() -> dict[str, dict[str, list[str]]]:
    """The classes of each table, by the type of the configuration."""
    from transformers.models.auto import modeling_auto

    found = {}
    for name, table in vars(modeling_auto).items():
        if name.startswith("MODEL_FOR_") and name.endswith("_MAPPING_NAMES"):
            rows = {kind: list(each) if isinstance(each, list | tuple) else [each] for kind, each in table.items()}
            found[name.removeprefix("MODEL_FOR_").removesuffix("_MAPPING_NAMES")] = rows
    return found


def model_of(kind: str, name: str) -> Any:
    """A small model of a class, with random weights."""
    import torch
    import transformers

    from tests.models.tasks.folders import draw

    whole = transformers.AutoConfig.for_model(kind)
    settings = shrunk(whole.to_dict())
    for derived in (
        "transformers_version", "model_type", "dtype", "architectures", "_name_or_path", "id2label", "label2id",
    ):  # fmt: skip
        settings.pop(derived, None)
    torch.manual_seed(0)
    config = type(whole)(**settings)
    if getattr(config, "pad_token_id", 0) is None and not hasattr(config, "vision_config"):
        config.pad_token_id = 0
    return draw(getattr(transformers, name)(config).eval())


def tried(kind: str, name: str, *, build: bool = False) -> tuple[str, str]:
    """What becomes of a class: an outcome, and the reason or the largest error."""
    from patcomp.errors import PatcompError, reason_of
    from patcomp_models.tasks.folder_to_program import entries_of
    from patcomp_models.tasks.table import refusal, task_of

    if why := refusal(name):
        return "refused by name", why
    if task_of(name) is None:
        return "no task", ""
    try:
        model = model_of(kind, name)
    except Exception as error:  # settings that are too small make models raise anything
        return "not built", reason_of(error)
    with TemporaryDirectory() as place:
        try:
            model.save_pretrained(place)
            entries = entries_of(place)
            if build:
                return "functions", ", ".join(each.name for each in entries)
            return "exact", f"{compared(entries):.0e}"
        except AssertionError as error:
            return "differs", str(error)
        except PatcompError as error:
            return "refused", str(error)
        except Exception as error:  # what is no refusal is a defect, and the others are tried, too
            return "error", reason_of(error)


def compared(entries: Sequence[Any]) -> float:
    """The largest error of all functions, relative to the largest value, on random inputs of other sizes."""
    from patcomp import TorchConverter
    from patcomp_models.tasks.folder_to_program import exported_entry

    converter = TorchConverter()
    for entry in entries:
        converter.add_exported_program(
            exported_entry(entry), entry.given, entry.outputs, entry.states or None, entrypoint_name=entry.name
        )
    program, worst = converter.to_coreai(), 0.0
    for entry in entries:
        found = program.verify_against(entry.module, others(entry), entrypoint=entry.name)
        if not found.passed:
            raise AssertionError(str(found))
        worst = max([worst, *(each.max_rel for each in found.errors)])
    return worst


_SIZES = {"length": 9, "choices": 3, "kinds": 3}


def others(entry: Any) -> tuple[Any, ...]:
    """Random inputs of a function, with another size where one is open; those of functions with states stay."""
    import torch

    if entry.states:  # the positions belong to the tokens
        return tuple(value.clone() for value in entry.inputs.values())
    numbers, made = torch.Generator().manual_seed(3), []
    for name, value in entry.inputs.items():
        shape = list(value.shape)
        for axis, size in (entry.dynamic.get(name) or {}).items():
            usual = _SIZES.get(size.__name__, 2 * shape[axis] + 1)
            shape[axis] = usual if usual >= size.min else shape[axis] + 1  # Florence-2 has many image tokens
        if name == "attention_mask":
            made.append(torch.ones(shape, dtype=value.dtype))
        elif name == "bbox":
            made.append(value[..., :1, :].expand(shape).contiguous())
        elif value.is_floating_point():
            made.append(torch.randn(shape, generator=numbers).to(value.dtype))
        else:
            drawn = torch.randint(0, int(value.max()) + 1, shape, generator=numbers).to(value.dtype)
            drawn[..., -1:] = value[..., -1:]  # some models look for the token at the end
            made.append(drawn)
    return tuple(made)


def main() -> None:
    """Try classes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mapping", nargs="+", default=[], help="only these tables")
    parser.add_argument("--type", nargs="+", default=[], help="only these types of configurations")
    parser.add_argument("--build", action="store_true", help="convert nothing")
    parser.add_argument("--into", type=Path, help="a file with a line for each class")
    options = parser.parse_args()
    declare_operators()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    had = set()
    if options.into and options.into.exists():
        had = {tuple(json.loads(line)[:3]) for line in options.into.read_text().splitlines()}
    counts: dict[str, Counter[str]] = {}
    for mapping, table in classes().items():
        if options.mapping and mapping not in options.mapping:
            continue
        rows = [(kind, name) for kind, names in table.items() for name in names]
        for kind, name in rows:
            if (options.type and kind not in options.type) or (mapping, kind, name) in had:
                continue
            start = time.process_time()
            outcome, reason = tried(kind, name, build=options.build)
            counts.setdefault(mapping, Counter())[outcome] += 1
            row = (mapping, kind, name, outcome, reason, round(time.process_time() - start, 1))
            if options.into:
                with options.into.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            print(*row, sep=" | ", file=sys.stderr, flush=True)
    for mapping, found in counts.items():
        print(mapping, dict(found))


if __name__ == "__main__":
    main()
