"""CSM: a backbone that hears texts and frames, and a depth decoder that writes the codes of a frame.

Its codec, Mimi, is in the same folder, and becomes a bundle of its own: `--kind streaming_codec`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import FLOATS, PROCESSOR, Interface, problem
from patcomp_models.bundles.kind import Component
from patcomp_models.bundles.speech.folders import configuration_of, content_of, tokenizer_of
from patcomp_models.bundles.synthesis.form import (
    SynthesisForm,
    functions_of,
    mismatches,
    number_problems,
    part_problems,
)
from patcomp_models.checkpoints.tokenizers import save

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry

CSM = "CsmForConditionalGeneration"
_GENERATION = "generation_config.json"
_NUMBERS = ("codebooks", "codes", "width", "longest", "end_code")
_STATES = {"keyCache", "valueCache"}


class Csm(SynthesisForm):
    """`CsmForConditionalGeneration` of transformers."""

    def components(self) -> Sequence[Component]:
        tokenizer_of(self.folder)
        return [Component("main", "main.aimodel", self._entries)]

    def metadata(self) -> Mapping[str, Any]:
        config = self._completed
        return {
            "architecture": "csm", "codebooks": config.num_codebooks, "codes": config.vocab_size,
            "width": config.hidden_size, "longest": config.max_position_embeddings,
            "end_code": config.codebook_eos_token_id, "sample_rate": config.codec_config.sampling_rate,
        }  # fmt: skip

    def write_files(self, bundle: Path) -> None:
        save(tokenizer_of(self.folder), bundle / PROCESSOR)
        told = content_of(self.folder / _GENERATION)
        (bundle / _GENERATION).write_text(json.dumps(told, indent=2) + "\n")

    @staticmethod
    def problems(bundle: Path, metadata: Mapping[str, Any]) -> list[Problem]:
        config = metadata["config"]
        found = number_problems(config, _NUMBERS) + part_problems(bundle, metadata, ("main",))
        if found:
            return found
        books, codes, width = config["codebooks"], config["codes"], config["width"]
        ids = ((1, None), ("int32",))
        embeddings: Any = {"embeddings": ((1, None, width), FLOATS)}
        interfaces = {
            "text": Interface({"input_ids": ids}, embeddings),
            "codes": Interface({"codes": ((1, None, books), ("int32",))}, embeddings),
            "main": Interface(
                {"inputs_embeds": ((1, None, width), FLOATS), "position_ids": ids},
                {"logits": ((1, None, codes), FLOATS), "hidden": ((1, None, width), FLOATS)},
            ),
            "depth": Interface({"codes": ids, "hidden": ((1, width), FLOATS)}, {"logits": ((1, codes), FLOATS)}),
        }
        functions, found = functions_of(bundle / metadata["assets"]["main"], interfaces)
        found += mismatches(functions, interfaces)
        if "main" in functions and set(functions["main"].states) != _STATES:
            found.append(problem(f"the states of main must be {', '.join(sorted(_STATES))}"))
        return found

    @property
    def _completed(self) -> Any:
        """The configuration, as transformers completes it."""
        return configuration_of(self.folder)

    def _entries(self) -> list[Entry]:
        import torch
        from torch.export import Dim

        from patcomp_models.bundles.hearing.functions import HearingDecoder, decoder_entry
        from patcomp_models.bundles.loading import model_of
        from patcomp_models.bundles.synthesis.csm_modules import CodeTable, Depth, TextTable
        from patcomp_models.tasks.entries import Entry

        model = model_of(self.folder, "transformers", CSM, self.dtype)
        model.set_attn_implementation("sdpa")
        config = model.config
        new = Dim("new", min=1, max=config.max_position_embeddings)
        codes = torch.arange(5 * config.num_codebooks).reshape(1, 5, -1) % config.vocab_size
        hidden = torch.randn(1, config.hidden_size, generator=torch.Generator().manual_seed(1)).to(model.dtype)
        chosen = Dim("chosen", min=1, max=config.num_codebooks - 1)
        return [
            Entry("text", TextTable(model), {"input_ids": torch.arange(5)[None]}, ("embeddings",),
                  {"input_ids": {1: new}}),
            Entry("codes", CodeTable(model), {"codes": codes}, ("embeddings",), {"codes": {1: new}}),
            decoder_entry(HearingDecoder(model, hidden=True).eval(), config.max_position_embeddings),
            Entry("depth", Depth(model), {"codes": codes[:, 0, :2], "hidden": hidden}, ("logits",),
                  {"codes": {1: chosen}}),
        ]  # fmt: skip
