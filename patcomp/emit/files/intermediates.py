"""The folder of a reference run, `NAME.aimodelintermediates`, which Core AI Debugger compares with an asset.

Facts: coreai-torch 0.4.3 writes `metadata.json` and an array for each value in `data`. The metadata have `inputs`,
`outputs` and `intermediates` by the names of nodes, and `mappings`: the nodes that an asset names, by number
(`sources`), and which of their results are which results of its ops (`outputs`). Weights are intermediates, too, as
nodes `get_attr`.
"""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from patcomp.interface.reference import ReferenceValue, Save

SUFFIX = ".aimodelintermediates"
_METADATA, _DATA = "metadata.json", "data"


def check_intermediates_path(path: Path) -> None:
    """Check that a reference run may be saved at a path.

    Raises:
        ValueError: the path does not end in `.aimodelintermediates`.
        FileExistsError: something else than a reference run is there.
    """
    if path.suffix != SUFFIX:
        raise ValueError(f"the path of a reference run must end in {SUFFIX}, got {str(path)!r}")
    known = {_METADATA, _DATA, ".DS_Store"}
    if path.exists() and not (path.is_dir() and {each.name for each in path.iterdir()} <= known):
        raise FileExistsError(f"{path} is not replaced: it is no reference run; choose another path, or move it away")


def write_intermediates(path: Path, run: Callable[[Save], None], mappings: Mapping[str, Any]) -> None:
    """Write a reference run, which replaces one that is there once it is complete.

    Args:
        path: the folder.
        run: runs the model, and saves each value when it is there.
        mappings: `sources` and `outputs`.

    Raises:
        As `check_intermediates_path`; OSError: a file cannot be written.
    """
    check_intermediates_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    described: dict[str, dict[str, Any]] = {"inputs": {}, "outputs": {}, "intermediates": {}}
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        draft = Path(folder, path.name)
        (draft / _DATA).mkdir(parents=True)
        numbers = itertools.count()

        def save(value: ReferenceValue) -> None:
            file = f"{_DATA}/{value.name}_{next(numbers):04d}.npy"
            np.save(draft / file, value.array, allow_pickle=False)
            described[value.kind][value.name] = {
                "node_name": value.name,
                "node_op": value.op,
                "node_target": value.target,
                "data_file": file,
                "shape": list(value.array.shape),
                "torch_dtype": value.element_type,
                "numel": value.array.size,
            }

        run(save)
        (draft / _METADATA).write_text(json.dumps({**described, "mappings": mappings}, indent=2))
        if path.exists():
            shutil.rmtree(path)
        draft.rename(path)
