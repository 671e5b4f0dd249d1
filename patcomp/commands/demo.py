"""The demo: a small Llama of the transformers library, unmodified, converted, checked and saved.

`patcomp demo` runs it. The model has every layer type of the large ones (grouped-query attention, rotary
embedding, gated feed-forward), random weights, and needs no download.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from rich.console import Console

from patcomp import TorchConverter
from patcomp.commands.common import require_transformers, running
from patcomp.commands.tables import composites_line, show
from patcomp.emit.files.replacement import check_target
from patcomp.emit.inspection import inspect_asset
from patcomp.emit.toolchain.library import has_toolchain
from patcomp.program.stages import stage_table
from patcomp.program.units import size_text
from patcomp.torchvision import misfit

_OPENS = {"darwin": "open", "win32": "start"}
"""The command that opens a file, for each platform; elsewhere it is xdg-open."""


def small_llama() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """A Llama with four layers and seeded random weights, and tokens for it.

    Raises:
        PatcompError: transformers is not installed, or cannot be imported.
    """
    require_transformers("the demo")
    with running("the import of transformers"):
        from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=176,
        max_position_embeddings=64,
        use_cache=False,
    )
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:  # the scales of the norms, which start as ones
            parameter.data.uniform_(0.5, 1.5)
    return model, (torch.randint(0, config.vocab_size, (1, 16)),)


def run_demo(console: Console, folder: Path) -> bool:
    """Convert the Llama, write the asset, the stage dumps and the HTML report; return whether the numbers agree.

    Without `coreai-core`, patcomp writes the asset itself, and the reference evaluator runs it.

    Raises:
        PatcompError: transformers is not installed, or cannot be imported.
        OSError: the folder cannot be written, or the asset's path has something other than an asset.
    """
    stages, path = folder / "stages", folder / "llama.aimodel"
    check_target(path)
    if not has_toolchain():
        console.print(
            "coreai-core is not installed: patcomp writes the asset itself, and runs it on the reference evaluator. "
            'For the Core AI runtime: pip install "patcomp[coreai]"',
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
    model, inputs = small_llama()
    if problem := misfit():
        console.print(f"note: {problem}", markup=False, highlight=False, soft_wrap=True)
    console.print(
        "exporting LlamaForCausalLM of transformers: 4 layers, grouped-query attention, random weights", soft_wrap=True
    )
    exported = torch.export.export(model, inputs)
    converter = TorchConverter().add_exported_program(exported, output_names=["logits"])
    program = converter.to_coreai(dump_ir=stages)
    console.print(f"{len(exported.graph.nodes)} FX nodes became {program!r}\n", highlight=False)
    show(stage_table(program.reports), console)
    console.print(composites_line(program), highlight=False)
    verification = program.verify_against(model, inputs)
    show(verification, console)
    asset = program.save_asset(path)
    found = inspect_asset(path)
    console.print(
        f"asset:       {path}, {size_text(found.bytes)} with {sum(found.ops.values())} ops and {len(found.weights)} "
        f"weights; look into it with: patcomp inspect {path}",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    passed = verification.passed
    if not has_toolchain():
        values = {program.signature().inputs[0].name: inputs[0]}
        same = torch.equal(torch.from_numpy(asset.evaluate(values)["logits"]), program.run(values)["logits"])
        console.print(f"the asset, read again, computes {'the same numbers' if same else 'OTHER NUMBERS'}")
        passed = passed and same
    console.print(f"stage dumps: {stages}/00-import.mlir ... {stages}/08-emit.mlir", highlight=False, soft_wrap=True)
    page = program.html(folder / "report.html", verification=verification)
    console.print(
        f"report:      {page}; open it with: {_OPENS.get(sys.platform, 'xdg-open')} {page}",
        highlight=False,
        soft_wrap=True,
    )
    return passed
