"""`patcomp convert --batch FILE`: the options of many conversions in a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from patcomp.commands.batch import BatchJob, BatchResult, convert_batch, junit
from patcomp.commands.common import ANSWER_IS_NO, UsageError, print_json, say
from patcomp.commands.tables import print_table
from patcomp.emit.files.replacement import check_writable
from patcomp.errors import PatcompError, near_names

_OF_THE_BATCH = ("batch", "jobs", "junit", "json", "quiet", "verbose", "help")
"""Options of the command that are not options of one conversion."""


_Options = Mapping[str, tuple[bool, bool]]
"""Whether an option of convert is a flag, and whether it may be repeated, by its name without dashes."""


def read_jobs(path: Path, known: _Options) -> list[BatchJob]:
    """The jobs in a TOML file: a table `[defaults]`, and a table `[[models]]` for each model.

    The keys are the options of `patcomp convert`; paths are relative to the file.

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
    models, defaults = data.get("models"), data.get("defaults", {})
    if not (isinstance(models, list) and models and all(isinstance(each, dict) for each in [*models, defaults])):
        raise UsageError(f"{path} must have a table [[models]] for each model, and may have a table [defaults]")
    if unknown := data.keys() - {"models", "defaults"}:
        raise UsageError(f"{path} has {', '.join(sorted(unknown))}; it may have [defaults] and [[models]] only")
    jobs = [_job(path, defaults | model, known) for model in models]
    for what, keys in (("name", [job.name for job in jobs]), ("output", [_asset(job) for job in jobs])):
        if repeated := sorted({key for key in keys if key and keys.count(key) > 1}):
            raise UsageError(f"{path}: two models have the same {what}, {repeated[0]}")
    return jobs


def _job(path: Path, table: Mapping[str, Any], known: _Options) -> BatchJob:
    options = {key.replace("_", "-"): value for key, value in table.items()}
    model = options.pop("model", None)
    if not isinstance(model, str):
        raise UsageError(f"{path}: each of [[models]] needs a model, such as model = 'nets.py:net'")
    if "\0" in f"{model}{table.get('name')}":
        raise UsageError(f"{path}: the model {model!r} has a null character")
    name = str(options.pop("name", model.rpartition(".py:")[2] if ".py:" in model else Path(model).stem))
    if not (options.keys() & {"output", "text", "kind"} or model.endswith(".gguf")):  # bundles have a name of their own
        options["output"] = f"{name}.aimodel"
    arguments = [model]
    for key, value in options.items():
        arguments += _arguments(f"{path}: {name}: {key}", key, value, known)
    return BatchJob(name, tuple(arguments), str(path.absolute().parent))


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
        if name.startswith("--") and name.removeprefix("--") not in _OF_THE_BATCH
    }


def _asset(job: BatchJob) -> str:
    """The path of a job's asset; empty if it has none."""
    if "--output" not in job.arguments:
        return ""
    return str(Path(job.folder, job.arguments[job.arguments.index("--output") + 1]).resolve())


def run_batch(file: Path, known: _Options, workers: int, report: Path | None, *, as_json: bool, quiet: bool) -> int:
    """Convert the models of a TOML file for the command line; return the exit code."""
    if workers < 1:
        raise UsageError("--jobs must be 1 or more")
    if report is not None:
        check_writable(report)
    if not file.is_file():
        raise PatcompError(f"there is no file {file}")

    def show(result: BatchResult) -> None:
        if not quiet or not result:
            reason = f": {result.reason}" if result.reason else ""
            say(f"{result.verdict} {result.name} in {result.seconds:.1f} s{reason}")

    results = convert_batch(read_jobs(file, known), workers=workers, done=show)
    if report is not None:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(junit(results))
    if as_json:
        print_json([result.to_dict() for result in results])
    elif not quiet:
        ops = [str((result.data or {}).get("ops", "")) for result in results]
        rows = [
            (each.name, each.verdict, f"{each.seconds:.1f}", count, each.reason)
            for each, count in zip(results, ops, strict=True)
        ]
        print_table(["model", "result", "seconds", "ops", "reason"], rows)
    codes = {result.code for result in results} - {0}
    return 0 if not codes else ANSWER_IS_NO if codes == {ANSWER_IS_NO} else 1
