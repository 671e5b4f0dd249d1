"""The rows of ops by the cases that ONNX itself has for each op."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from patcomp.errors import PatcompError
from patcomp.onnx.importing.exporting import onnx_module

onnx = pytest.importorskip("onnx")

_UNUSUAL = ("float8", "float4", "int4", "int2", "e8m0", "e4m3", "e5m2", "bf16", "bfloat16", "fp16", "float16", "string")
"""Parts of the names of cases whose arrays numpy lacks, or whose numbers in half precision differ by rounding."""
_CONSTANTS = 64
"""Further inputs of integers of at most so many elements are constants of the file, as exporters write them."""


def _arrays(values: Any) -> list[np.ndarray]:
    from onnx import numpy_helper

    return [np.array(numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v) for v in values]


def _with_constants(model: Any, inputs: list[np.ndarray]) -> Any:
    from onnx import numpy_helper

    made = onnx.ModelProto()
    made.CopyFrom(model)
    for index, (value, array) in enumerate(zip(model.graph.input, inputs, strict=False)):
        whole = array.dtype.kind in "iub" and array.size <= _CONSTANTS
        if index and (whole or array.size <= 4 or "scale" in value.name):
            made.graph.initializer.append(numpy_helper.from_array(array, value.name))
    return made


def _outcome(case: Any, place: Path) -> str:

    if not all(
        isinstance(value, np.ndarray | np.generic | onnx.TensorProto) for each in case.data_sets[0] for value in each
    ):
        return "of sequences"
    inputs, outputs = map(_arrays, case.data_sets[0])
    path = place / "case.onnx"
    onnx.save(_with_constants(case.model, inputs), path)
    try:
        module = onnx_module(path)
        by_name = dict(zip((each.name for each in case.model.graph.input), inputs, strict=False))
        with torch.no_grad():
            results = module(*(torch.from_numpy(by_name[each.name]) for each in module.file.arguments))
    except PatcompError as error:
        return "refused" if str(error).startswith(str(path)) else f"unclear: {error}"
    for result, wanted in zip(results, outputs, strict=True):
        assert result.numpy().dtype == wanted.dtype, case.name
        limits = {"rtol": max(case.rtol, 1e-3), "atol": max(case.atol, 1e-5)}
        np.testing.assert_allclose(result.numpy(), wanted, err_msg=case.name, **limits)
    return "equal"


def test_each_case_of_onnx_is_equal_or_refused(tmp_path: Path) -> None:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the references that make the cases
        cases = collect_testcases(None)
        found = Counter(
            _outcome(case, tmp_path)
            for case in cases
            if not any(part in case.name.lower() for part in (*_UNUSUAL, "_expanded", "training"))
        )
    assert found.keys() == {"equal", "refused", "of sequences"}
    assert found["equal"] > 700, found
