"""A checkpoint in 4 bits: patcomp beside coreai-opt's eager quantizer and coreai-torch, each in its own environment.

    python -m benchmarks.language_quantizers patcomp FOLDER OUT
    OTHER/bin/python benchmarks/language_quantizers.py coreai-opt FOLDER OUT

FOLDER has a Llama that `benchmarks.language.write_checkpoint` wrote. Prints the seconds and the memory of each step as
JSON, and the bytes of the asset. The memory is looked at fifty times a second.
"""

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

most = {"VmRSS": 0.0, "RssAnon": 0.0}
"""The most memory since the step began, GB: all, and what lies in no file."""


def watch() -> None:
    while True:
        for line in Path("/proc/self/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in most:
                most[name] = max(most[name], int(value.split()[0]) * 1024 / 1e9)
        time.sleep(0.02)


@contextmanager
def step(name: str) -> Iterator[None]:
    most.update(dict.fromkeys(most, 0.0))
    started, processor = time.perf_counter(), time.process_time()
    yield
    time.sleep(0.05)
    spent = {"seconds": time.perf_counter() - started, "CPU seconds": time.process_time() - processor, **most}
    print(json.dumps({"step": name, **{what: round(value, 2) for what, value in spent.items()}}), flush=True)


def patcomp(folder: Path, out: Path) -> Path:
    from benchmarks.models import declare_torchvision_operators

    declare_torchvision_operators()  # before anything imports transformers

    from patcomp_models.language import convert_language_model

    bundle = convert_language_model(folder, out=out, tokenizer=False, check=False, compress="4bit", progress=step)
    return bundle.asset


class Logits(torch.nn.Module):
    """A language model without caches, which `torch.export` takes as it is."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(tokens, use_cache=False).logits
        return logits


@torch.no_grad()
def coreai_opt(folder: Path, out: Path) -> Path:
    import coreai_torch
    from coreai_opt.quantization import (
        ExecutionMode,
        ModuleQuantizerConfig,
        QuantizationSpec,
        Quantizer,
        QuantizerConfig,
    )
    from coreai_opt.quantization.spec.granularity import PerBlockGranularity, PerChannelGranularity
    from transformers import LlamaForCausalLM

    def weights(dtype: torch.dtype, granularity: object) -> object:
        spec = QuantizationSpec(dtype=dtype, granularity=granularity)
        return ModuleQuantizerConfig(op_state_spec={"weight": spec}, op_input_spec=None, op_output_spec=None)

    with step("load"):
        model = Logits(LlamaForCausalLM.from_pretrained(folder, dtype=torch.float16)).eval()
    tokens = (torch.tensor([[3, 41, 59, 26]]),)
    blocks = weights(torch.int4, PerBlockGranularity(axis=1, block_size=32))
    config = QuantizerConfig(
        global_config=None,
        module_type_configs={torch.nn.Linear: blocks, torch.nn.Embedding: blocks},
        module_name_configs={"model.lm_head": weights(torch.int8, PerChannelGranularity(axis=0))},
        execution_mode=ExecutionMode.EAGER,
    )
    with step("prepare"):
        quantizer = Quantizer(model, config)
        prepared = quantizer.prepare(tokens)
    with step("finalize"):
        final = quantizer.finalize()
    del model, prepared, quantizer
    with step("export"):
        exported = torch.export.export(final, tokens)
    with step("convert"):
        exported = exported.run_decompositions(coreai_torch.get_decomp_table())
        program = coreai_torch.TorchConverter().add_exported_program(exported).to_coreai()
    with step("save"):
        program.save_asset(out)
    return out


def main() -> None:
    threading.Thread(target=watch, daemon=True).start()
    with_ = {"patcomp": patcomp, "coreai-opt": coreai_opt}[sys.argv[1]]
    asset = with_(Path(sys.argv[2]), Path(sys.argv[3]))
    print(sum(file.stat().st_size for file in asset.rglob("*") if file.is_file()))


if __name__ == "__main__":
    main()
