"""The TOML file of a batch: the options of many conversions, and what of them is varied."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from patcomp.commands.batches.jobs import BatchJob
from patcomp.commands.common import UsageError
from patcomp.errors import near_names

_SHOWN = ("json", "quiet", "verbose", "help")
"""Options that say what a conversion shows."""


_Options = Mapping[str, tuple[bool, bool]]
"""Whether an option of convert is a flag, and whether it may be repeated, by its name without dashes."""


def read_jobs(path: Path, known: _Options) -> list[BatchJob]:
    """The jobs in a TOML file: a table `[defaults]`, a table `[matrix]`, and a table `[[models]]` for each model.

    The keys are the options of `patcomp convert`; paths are relative to the file. Each model is converted with each
    combination of the values in the matrix, which are lists; `false` leaves an option out.

    Args:
        path: the file.
        known: the options that a key may name.

    Raises:
        UsageError: the file is no TOML, or a table, key or value has another form.
    """
    try:
        data = tomllib.loads(path.read_text())
    except RecursionError:
        raise UsageError(f"{path} has lists or tables that are nested too deeply") from None
    except ValueError as error:  # wrong syntax, bytes that are not text, or an integer of thousands of digits
        raise UsageError(f"{path} is not TOML: {error}") from error
    models, defaults, matrix = data.get("models"), data.get("defaults", {}), data.get("matrix", {})
    models = models if isinstance(models, list) else []
    if not models or not all(isinstance(each, dict) for each in [*models, defaults, matrix]):
        raise UsageError(
            f"{path} must have a table [[models]] for each model, and may have the tables [defaults] and [matrix]"
        )
    if unknown := data.keys() - {"models", "defaults", "matrix"}:
        raise UsageError(
            f"{path} has {', '.join(sorted(unknown))}; it may have [defaults], [matrix] and [[models]] only"
        )
    matrix = {key.replace("_", "-"): values for key, values in matrix.items()}
    for key, values in matrix.items():
        if key not in known:
            raise UsageError(f"{path}: matrix: {key} is not an option of convert; there are {near_names(key, known)}")
        if not isinstance(values, list) or not values:
            raise UsageError(f"{path}: matrix: {key} must be a list of values, such as [false, 'w8'], got {values!r}")
    combinations = [dict(zip(matrix, values, strict=True)) for values in product(*matrix.values())]
    jobs = [_job(path, defaults | model, chosen, known) for model in models for chosen in combinations]
    for what, keys in (("name", [job.name for job in jobs]), ("output", [_asset(job) for job in jobs])):
        if repeated := sorted({key for key in keys if key and keys.count(key) > 1}):
            raise UsageError(f"{path}: two models have the same {what}, {repeated[0]}")
    return jobs


def _job(path: Path, table: Mapping[str, Any], chosen: Mapping[str, Any], known: _Options) -> BatchJob:
    """A conversion of a model.

    Args:
        table: what the file says of the model.
        chosen: what the matrix chooses; it comes after the table, and names the conversion.
    """
    options = {**{key.replace("_", "-"): value for key, value in table.items()}, **chosen}
    options = {key: value for key, value in options.items() if value is not False or key not in chosen}
    model = options.pop("model", None)
    if not isinstance(model, str):
        raise UsageError(f"{path}: each of [[models]] needs a model, such as model = 'nets.py:net'")
    if "\0" in f"{model}{table.get('name')}":
        raise UsageError(f"{path}: the model {model!r} has a null character")
    of_model = str(options.pop("name", model.rpartition(".py:")[2] if ".py:" in model else Path(model).stem))
    words = {key: key if value is True else _word(value) for key, value in chosen.items() if value is not False}
    name = "-".join([of_model, *words.values()])
    if not (options.keys() & {"output", "text", "kind"} or model.endswith(".gguf")):  # bundles have a name of their own
        options["output"] = f"{name}.aimodel"
    arguments = [model]
    for key, value in options.items():
        arguments += _arguments(f"{path}: {name}: {key}", key, value, known)
    choices = {key: words.get(key, "") for key in chosen}
    return BatchJob(name, tuple(arguments), str(path.absolute().parent), of_model, choices)


def _word(value: Any) -> str:
    """A value of the matrix as a part of a name: of the path of a file its stem."""
    text = "_".join(map(str, value)) if isinstance(value, list) else str(value)
    return Path(text).stem if text.endswith((".toml", ".py")) else text.replace("/", "_")


def _arguments(place: str, key: str, value: Any, known: _Options) -> list[str]:
    """An option and its value as arguments of the command.

    Raises:
        UsageError: there is no such option, or the value has another type.
    """
    if key not in known:
        raise UsageError(f"{place} is not an option of convert; there are {near_names(key, known)}")
    is_flag, is_list = known[key]
    values = value if isinstance(value, list) else [value]
    if any(isinstance(each, bool) != is_flag or not isinstance(each, str | int | float) for each in values):
        raise UsageError(
            f"{place} must be {'true or false' if is_flag else 'a text or a list of texts'}, got {value!r}"
        )
    if is_flag:
        return [f"--{key}"] if value else []
    texts = [str(each) for each in values]
    if any("\0" in text for text in texts):
        raise UsageError(f"{place} has a null character")
    return [part for each in (texts if is_list else [",".join(texts)]) for part in (f"--{key}", each)]


def options_of(command: Any) -> _Options:
    """The options of one conversion that a command of Click has."""
    return {
        name.removeprefix("--"): (getattr(option, "is_flag", False), getattr(option, "multiple", False))
        for option in command.params
        for name in option.opts
        if name.startswith("--") and name.removeprefix("--") not in _SHOWN
    }


def _asset(job: BatchJob) -> str:
    """The path of a job's asset; empty if it has none."""
    if "--output" not in job.arguments:
        return ""
    return str(Path(job.folder, job.arguments[job.arguments.index("--output") + 1]).resolve())
