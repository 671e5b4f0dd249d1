"""Language models that patcomp and coreai-core write: the same structure, and the same bits in each step."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from patcomp import AIProgram
from patcomp.emit.asset import Asset
from patcomp.emit.native import Native
from patcomp.emit.stored.folder import PROGRAM, read_folder
from patcomp.emit.unconstrained import unconstrained
from patcomp_models.language import ARCHITECTURES, convert_language_model
from patcomp_models.language.bundle_assets import empty_caches, empty_states
from patcomp_models.language.generation import Session, greedy
from patcomp_models.language.static_run import function_sizes, generate_static
from tests.asset.structure import encoded, settled, structure
from tests.models.language.checkpoints import PROMPT, checkpoint

WRITERS = ("python", "coreai")
CONTEXT = 64
IN_CI = ("llama", "gpu")
CASES = [
    *((kind, "gpu") for kind in ARCHITECTURES),
    *((kind, "neural_engine") for kind, each in ARCHITECTURES.items() if each.has_static_form),
]


@pytest.mark.parametrize(
    ("kind", "target"), [case if case == IN_CI else pytest.param(*case, marks=pytest.mark.slow) for case in CASES]
)
def test_both_writers(
    native: Native, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, target: Literal["gpu", "neural_engine"]
) -> None:
    """A prompt of 12 tokens and three new ones, with states."""
    paths = [tmp_path / f"{writer}.aimodel" for writer in WRITERS]
    save = AIProgram.save_asset

    def save_by_both(program: AIProgram, path: Path, **options: Any) -> Asset:
        for each in paths:
            made = save(program, each, **options | {"writer": each.stem})
        return made

    monkeypatch.setattr(AIProgram, "save_asset", save_by_both)
    model: Any = checkpoint(kind)
    if target == "neural_engine":
        model.config.sliding_window = None
    convert_language_model(model, target, out=tmp_path / "bundle", max_context=CONTEXT, tokenizer=False, check=False)
    first, second = map(read_folder, paths)
    assert encoded(second) == (paths[1] / PROGRAM).read_bytes()
    assert structure(settled(first)) == structure(second)
    assert first.weights.keys() == second.weights.keys()
    assert all(bytes(weight.data) == bytes(second.weights[name].data) for name, weight in first.weights.items())
    ours, theirs = (steps(native, Asset(path)) for path in paths)
    assert len(ours) >= 3
    assert ours == theirs


def steps(native: Native, asset: Asset) -> list[dict[str, bytes]]:
    """The bits of all outputs and states of each call."""
    made: list[dict[str, bytes]] = []
    with ExitStack() as stack:
        runnable = stack.enter_context(unconstrained(asset))

        def call(name: str, inputs: Mapping[str, Any], states: dict[str, Any]) -> dict[str, np.ndarray]:
            outputs, new = native.call(runnable.path, inputs, states, name)
            states.update(new)
            made.append({each: array.tobytes() for each, array in (outputs | new).items()})
            return outputs

        if sizes := function_sizes(runnable.function_names):
            generate_static(call, sizes, empty_caches(runnable, sizes), PROMPT, 3)
        else:
            empty = empty_states(runnable.described())
            greedy(Session(call, {"main": None}, empty, CONTEXT), PROMPT, 3)
    return made
