"""Held-out texts and pictures, and how the programs of a bundle read them on the evaluator: by the calls that the
bundle's form has, from empty states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from patcomp import AIProgram
from patcomp.evaluate.given import as_array
from patcomp.interface.graphs import argument_types
from patcomp.ir.types import ML_DTYPES, HandleType, TensorType, element_name, shape_of
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.bundle import Bundle
from patcomp_models.language.contract import (
    BATCH,
    EMBEDDED,
    EMBEDDING,
    LOGITS,
    MAIN,
    OVERRIDES,
    PER_LAYER,
    POSITIONS,
    PREFILL,
    SLIDING_WINDOW,
    TOKENS,
    TOWER,
)
from patcomp_models.language.per_layer import PerLayerTable
from patcomp_models.language.static_contract import EXTEND, IN_STEP, PROMPT, STATIC_LOGITS
from patcomp_models.language.static_run import function_sizes, generate_static
from patcomp_models.language.text_loss import LENGTH, Reading, parts_of, spread_parts
from patcomp_models.language.texts import files_at, text_at
from patcomp_models.language.vision.generating import embedded_call, features_of, tower_run
from patcomp_models.language.vision.packed import Pack

BundlePrograms = Mapping[str, AIProgram]
"""The programs of a bundle, by role."""
FunctionRun = Callable[[str, str, Mapping[str, Any], dict[str, Any]], Mapping[str, Any]]
"""Runs a function of a program, by the program's role and the function's name, on inputs and states by name; the states
are updated in place."""


@dataclass(frozen=True)
class HeldOutPart:
    """Tokens that are read from empty states, and the prepared pictures that their image tokens stand for."""

    tokens: Sequence[int]
    pixels: Sequence[np.ndarray] = ()
    pack: Pack | None = None


class ReadingForm(ABC):
    """How the programs of a bundle read a part of a text."""

    least, most = 2, LENGTH
    """The tokens of a part."""
    image_token = -1
    """The token of images, which is not told by those before it; -1 if there is none."""
    rounds: Mapping[str, str]
    """The function by whose inputs weights are rounded, by the role of its program; empty for the one that most of the
    parts call."""

    @abstractmethod
    def logits(self, run: FunctionRun, part: HeldOutPart) -> np.ndarray:
        """The logits of a part, (tokens, vocabulary)."""


class OpenForm(ReadingForm):
    """A function of any number of tokens, or of a fixed one (`prefill`)."""

    def __init__(self, program: AIProgram, bundle: Bundle):
        types = {
            name: argument_types(program.module.graph(name)) for name in (MAIN, PREFILL) if name in program.entrypoints
        }
        lengths = {name: shape_of(each[TOKENS])[1] for name, each in types.items()}
        self.function = next((name for name, length in lengths.items() if length != 1), "")
        if not self.function:
            raise LanguageModelError(
                f"the bundle {str(bundle.path)!r} reads one token in a call, and a text takes a function of several; "
                "convert the model with prefill= (--prefill)"
            )
        length, metadata = lengths[self.function], bundle.metadata
        self.most = length or min(LENGTH, int(metadata["language"]["max_context_length"]))
        self.least = length or 2
        self.rounds = {MAIN: self.function}
        self.types = types[self.function]
        self.table = PerLayerTable(bundle.path, metadata[PER_LAYER]) if PER_LAYER in self.types else None

    def logits(self, run: FunctionRun, part: HeldOutPart) -> np.ndarray:
        ids, count = np.array([part.tokens], np.int32), len(part.tokens)
        inputs = {TOKENS: ids, POSITIONS: np.arange(count, dtype=np.int32)[None]}
        inputs |= {} if self.table is None else self.table.fed(ids)
        made = run(MAIN, self.function, inputs, _empty_states(self.types, count + 1))
        return np.asarray(made[LOGITS][0])


class PictureForm(ReadingForm):
    """A function of embeddings, those of tokens and those of pictures."""

    rounds: Mapping[str, str] = {MAIN: MAIN, TOWER: ""}

    def __init__(self, program: AIProgram, bundle: Bundle):
        self.types = argument_types(program.module.graph(MAIN))
        assert EMBEDDED in self.types
        self.vision = bundle.metadata[TOWER]
        self.image_token = int(self.vision["image_token_id"])
        self.most = min(LENGTH, int(bundle.metadata["language"]["max_context_length"]))

    def logits(self, run: FunctionRun, part: HeldOutPart) -> np.ndarray:
        features = {}
        if part.pixels:
            tower = tower_run(lambda inputs, states, name: run(TOWER, name, inputs, {}), self.vision)
            seen = features_of(tower, *part.pixels)
            features[self.image_token] = seen if part.pack is None else part.pack(seen)
        call = embedded_call(
            lambda inputs: run(EMBEDDING, MAIN, inputs, {}),
            lambda name, inputs, states: run(MAIN, name, inputs, states),
            features,
        )
        count = len(part.tokens)
        inputs = {TOKENS: np.array([part.tokens], np.int32), POSITIONS: np.arange(count, dtype=np.int32)[None]}
        return np.asarray(call(MAIN, inputs, _empty_states(self.types, count + 1))[LOGITS][0])


class StaticForm(ReadingForm):
    """The Neural Engine's functions of fixed sizes: blocks of the largest size, one behind the other."""

    def __init__(self, program: AIProgram, bundle: Bundle):
        sizes, metadata = function_sizes(program.entrypoints), bundle.metadata
        block = max(queries for _, queries in sizes)
        fitting = [size for size, queries in sizes if queries == block]
        size = next((each for each in fitting if each >= LENGTH), fitting[-1])
        self.size, self.most = (size, block), min(LENGTH, size)
        self.rounds = {MAIN: f"{EXTEND}_{size}_{block}"}
        self.types = argument_types(program.module.graph(self.rounds[MAIN]))
        self.window = int(metadata["language"].get(OVERRIDES, {}).get(SLIDING_WINDOW, 0))
        self.rows = PerLayerTable(bundle.path, metadata[PER_LAYER]).rows_of if PER_LAYER in metadata else None

    def logits(self, run: FunctionRun, part: HeldOutPart) -> np.ndarray:
        found: list[np.ndarray] = []

        def call(name: str, inputs: Mapping[str, Any], states: dict[str, Any]) -> Mapping[str, Any]:
            made = run(MAIN, name.replace(PROMPT, EXTEND), inputs, states)  # a prompt's function gives no logits
            if IN_STEP in inputs:
                found.append(np.asarray(made[STATIC_LOGITS][0, 0]))
            return made

        empty = _empty_states(self.types, 0)
        generate_static(call, [self.size], empty, part.tokens, 1, window=self.window, rows=self.rows)
        return np.concatenate(found)[: len(part.tokens)]


@dataclass(frozen=True)
class HeldOut:
    """Parts of held-out texts, and the form that reads them."""

    form: ReadingForm
    parts: Sequence[HeldOutPart]

    @classmethod
    def of(cls, given: str | Path | Sequence[int], programs: BundlePrograms, folder: Path) -> HeldOut:
        """Parts of what the user gives.

        Args:
            given: token ids; the path of a text; or the path of a folder of texts (`*.txt`, `*.md`), which are read one
                behind the other, and, for a bundle with vision, of pictures, each with a text of the same name that
                has a place for it.
            programs: of the bundle.
            folder: of the bundle.

        Raises:
            LanguageModelError: there is no such text, or it is too short; a picture has no text, or the bundle takes no
                pictures; the bundle has no tokenizer, or no function that reads a text.
        """
        bundle = Bundle(folder)
        form = _form_of(programs, bundle)
        parts: list[HeldOutPart] = []
        if not isinstance(given, str | Path):
            tokens = list(given)
        elif TOWER not in programs:
            tokens = bundle.tokens_of(text_at(Path(given)))
        else:
            texts, pictured = files_at(Path(given))
            tokens = bundle.tokens_of("\n\n".join(texts)) if texts else []
            for picture, text in spread_parts(pictured):
                parts.append(HeldOutPart(*bundle.prepared(text.strip(), [picture])))
                if len(parts[-1].tokens) > form.most:
                    raise LanguageModelError(
                        f"{str(picture)!r} and its text are {len(parts[-1].tokens)} tokens, and the bundle reads "
                        f"{form.most} at most; shorten the text"
                    )
        if len(tokens) < form.least and (tokens or not parts):
            raise LanguageModelError(f"the text has {len(tokens)} tokens, and it takes {form.least} at least")
        parts += [HeldOutPart(each) for each in parts_of(tokens, form.most)] if tokens else []
        return cls(form, parts)

    def read_by(self, programs: BundlePrograms) -> Reading:
        """What programs make of the parts."""
        found = []
        for part in self.parts:
            logits = self.form.logits(lambda *call: _run(programs, *call), part)
            found.append(Reading.of(logits, part.tokens, self.form.image_token))
        return Reading.joined(found)

    def examples(self, programs: BundlePrograms) -> dict[str, RoundingExamples]:
        """What the programs give the functions by which weights are rounded; empty for one that is not called."""
        seen: dict[str, dict[str, list[dict[str, Any]]]] = {}

        def run(role: str, name: str, inputs: Mapping[str, Any], states: dict[str, Any]) -> Mapping[str, Any]:
            if self.form.rounds.get(role) in ("", name):
                values = {**inputs, **{state: np.array(each) for state, each in states.items()}}
                seen.setdefault(role, {}).setdefault(name, []).append(values)
            return _run(programs, role, name, inputs, states)

        for part in self.parts:
            self.form.logits(run, part)
        most = {role: max(calls, key=lambda name: len(calls[name])) for role, calls in seen.items()}
        return {role: RoundingExamples(name, seen[role][name]) for role, name in most.items()}


@dataclass(frozen=True)
class RoundingExamples:
    """Inputs and states of a function, by name."""

    entrypoint: str
    values: list[dict[str, Any]]


def _form_of(programs: BundlePrograms, bundle: Bundle) -> ReadingForm:
    if (texts := bundle.metadata["language"].get(BATCH, 1)) != 1:
        raise LanguageModelError(
            f"the bundle {str(bundle.path)!r} takes {texts} texts in a call, and a text is read by bundles that take "
            "one; convert the model without batch= (--batch)"
        )
    main = programs[MAIN]
    if EMBEDDING in programs:
        return PictureForm(main, bundle)
    return StaticForm(main, bundle) if function_sizes(main.entrypoints) else OpenForm(main, bundle)


def _run(
    programs: BundlePrograms, role: str, name: str, inputs: Mapping[str, Any], states: dict[str, Any]
) -> Mapping[str, Any]:
    made: Mapping[str, Any] = programs[role].run(inputs, entrypoint=name, state=states or None)
    return {output: as_array(each) for output, each in made.items()}


def _empty_states(types: Mapping[str, Any], capacity: int) -> dict[str, np.ndarray]:
    """The states of a function before the first token; one that grows has room for some tokens."""
    states = {name: type_.tensor_type for name, type_ in types.items() if isinstance(type_, HandleType)}
    return {name: _zeros(type_, capacity) for name, type_ in states.items()}


def _zeros(type_: Any, capacity: int) -> np.ndarray:
    assert isinstance(type_, TensorType)
    name = element_name(type_.element_type)
    dtype = np.dtype("int8") if name == "si8" else ML_DTYPES.get(name) or np.dtype(f"float{name[1:]}")
    return np.zeros([capacity if size is None else size for size in shape_of(type_)], dtype)
