"""The form of converted language models, beside that of the graphs that Apple's package writes by hand."""

from __future__ import annotations

import pytest
import torch

from patcomp.language import ARCHITECTURES, conversion
from patcomp.language.decoder import Decoder
from patcomp.language.loading import implementations
from tests.language.checkpoints import CONTEXT, checkpoint


@pytest.mark.parametrize("kind", ["qwen3", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("gpt_oss",))])
def test_the_cache_is_written_once_a_layer(kind: str) -> None:
    model = checkpoint(kind)
    architecture = ARCHITECTURES[kind]
    with implementations(model, architecture.attention, architecture.experts):
        program = conversion._converted(Decoder(model), CONTEXT, torch.float32)
    names = [op.name for op in program.module.graph("main").regions[0].block.ops]
    layers = 2
    for name, wanted in (("slice_update", 2 * layers), ("write_handle", 2 * layers), ("read_handle", 2 * layers + 2)):
        assert names.count(f"coreai.{name}") == wanted, name
