"""CSM: a backbone that hears texts and frames, and a depth decoder that writes the codes of a frame.

Its codec, Mimi, is in the same folder, and becomes a bundle of its own: `--kind streaming_codec`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from patcomp_models.bundle_folders.contract import FLOATS, Interface
from patcomp_models.bundles.synthesis.form import Continued, FormOfFunctions

if TYPE_CHECKING:
    from patcomp_models.tasks.entries import Entry


class Csm(FormOfFunctions):
    """`CsmForConditionalGeneration` of transformers."""

    holds, architecture = "CsmForConditionalGeneration", "csm"
    numbers_of_hosts = ("codebooks", "codes", "width", "longest", "end_code")

    @classmethod
    def numbers(cls, config: Any, generation: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "codebooks": config.num_codebooks, "codes": config.vocab_size, "width": config.hidden_size,
            "longest": config.max_position_embeddings, "end_code": config.codebook_eos_token_id,
            "sample_rate": config.codec_config.sampling_rate,
        }  # fmt: skip

    @classmethod
    def interfaces(cls, config: Mapping[str, Any]) -> Mapping[str, Mapping[str, Interface]]:
        books, codes, width = config["codebooks"], config["codes"], config["width"]
        ids = ((1, None), ("int32",))
        embeddings: Any = {"embeddings": ((1, None, width), FLOATS)}
        functions = {
            "text": Interface({"input_ids": ids}, embeddings),
            "codes": Interface({"codes": ((1, None, books), ("int32",))}, embeddings),
            "main": Continued(
                {"inputs_embeds": ((1, None, width), FLOATS), "position_ids": ids},
                {"logits": ((1, None, codes), FLOATS), "hidden": ((1, None, width), FLOATS)},
            ),
            "depth": Interface({"codes": ids, "hidden": ((1, width), FLOATS)}, {"logits": ((1, codes), FLOATS)}),
        }
        return {"main": functions}

    @classmethod
    def entries(cls, model: Any, role: str) -> list[Entry]:
        import torch
        from torch.export import Dim

        from patcomp_models.bundles.hearing.functions import HearingDecoder, decoder_entry
        from patcomp_models.bundles.synthesis.csm_modules import CodeTable, Depth, TextTable
        from patcomp_models.tasks.entries import Entry

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
