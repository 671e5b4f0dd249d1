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
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from patcomp.torchvision import declare_operators


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

    from tests.helpers.small_settings import a_sixteenth
    from tests.models.tasks.folders import draw

    whole = transformers.AutoConfig.for_model(kind)
    torch.manual_seed(0)
    config = type(whole)(**a_sixteenth(whole.to_dict()))
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
