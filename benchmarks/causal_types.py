"""What small models of every causal type of transformers become.

    python -m benchmarks.causal_types [--type TYPE ...] [--build] [--into FILE.jsonl] [--markdown]

Each type of `MODEL_FOR_CAUSAL_LM_MAPPING_NAMES` has the settings of its default configuration with small sizes, and
random weights. It is converted in float32, and the tokens of `Bundle.generate` are compared with those of the model's
own `generate`. Each conversion is a child process, which is ended after some minutes. `--into` has a line for each
type, and a run skips the types that it has. `--build` converts nothing. `--markdown` writes
`docs/generated/causal-types.md`: with `--type`, of other types the page keeps what it says.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import re
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill
from typing import Any

from patcomp.torchvision import declare_operators

DOCUMENT = Path(__file__).parents[1] / "docs" / "generated" / "causal-types.md"
_MINUTES = 10
"""How long a conversion may take."""
_MOST_WEIGHTS = 8_000_000
_NEW = 12
"""The tokens that are generated."""
_VARIED, _SEEDS = 4, 8
"""How many of them differ, if one of the first seeds gives such a model: one token again and again shows little."""

_ROPE = {"rope_type": "default", "rope_theta": 1e4}
_OF_A_DECODER = ("musicgen", "musicgen_melody")
"""Types whose language model has the configuration of a part."""
_ASSISTANTS = ("gemma4_assistant", "gemma4_unified_assistant")
_INDEXER = {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 16,
            "indexer_compress_ratio": 4}  # fmt: skip
_HEADS = {"per_layer_config": {}, "head_dim": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 12}
OWN: dict[str, dict[str, Any]] = {
    "blt": {"encoder_hash_byte_group_vocab": 64, "encoder_config.hidden_size_global": 32,
            "decoder_config.hidden_size_global": 32},
    "cohere_compass_text": {"rope_parameters": {"full_attention": _ROPE, "sliding_attention": _ROPE},
                            "layer_types": ["sliding_attention", "full_attention"]},
    "dbrx": {"attn_config.rope_theta": 1e4, "attn_config.clip_qkv": 8, "attn_config.kv_n_heads": 2},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "deepseek_v4": {
        "compress_rates": {"heavily_compressed_attention": 8, "compressed_sparse_attention": 4}, "index_topk": 2,
        "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"],
        "num_hidden_layers": 3,
    },
    "dory": {"num_hidden_layers": 6, "n_input_layers": 2, "n_recurrent_layers": 2, "n_output_layers": 2,
             "layer_types": ["sliding_attention", "mlp", "sliding_attention", "mlp", "full_attention", "mlp"]},
    "dots3_note": {**{f"text_config.{name}": size for name, size in _HEADS.items()}, "vision_config.adapter_in_dim": 32,
                   "vision_config.adapter_out_dim": 32, "audio_config.adapter_out_dim": 32,
                   "audio_config.adapter_input_size": 32},
    "gemma3n": {
        **{f"text_config.{name}": size for name, size in {
            "num_hidden_layers": 4, "num_kv_shared_layers": 2, "laurel_rank": 8, "altup_num_inputs": 2,
            "intermediate_size": [48] * 4, "activation_sparsity_pattern": [0.95, 0.0, 0.0, 0.0],
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        }.items()},
        "vision_config": {"model_type": "gemma3n_vision", "architecture": "resnet10t", "hidden_size": 512,
                          "model_args": {"channels": [8, 8, 8, 8]}},
        "audio_config.hidden_size": 32, "audio_config.conf_num_attention_heads": 4,
        "audio_config.conf_num_hidden_layers": 1, "audio_config.sscp_conv_channel_size": [8, 8],
    },
    "mllama": {"text_config.num_hidden_layers": 3, "text_config.cross_attention_layers": [1]},
    "ministral": {"head_dim": 8},
    "nemotron": {"num_key_value_heads": 2},
    "qwen4_exp": {f"text_config.{name}": size for name, size in _INDEXER.items()},
    "qwen4_exp_text": _INDEXER,
    "dots3_note_text": _HEADS,
    **{kind: {"text_config.num_kv_shared_layers": 2, "text_config.hidden_size_per_layer_input": 0,
              "text_config.vocab_size_per_layer_input": 0} for kind in _ASSISTANTS},
    "got_ocr2": {"vision_config.output_channels": 16, "vision_config.global_attn_indexes": [1],
                 "vision_config.window_size": 2},
    "hrm_text": {"num_layers_per_stack": 1, "H_cycles": 1, "L_cycles": 1},
    "inkling2_loop_text": {"num_hidden_layers": 6, "loop_layer_index_start": 2, "loop_layer_index_end": 4},
    "phi4_multimodal": {},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "xlstm": {"num_blocks": 2, "hidden_size": 128, "embedding_dim": 128},
    "xmod": {"default_language": "en_XX"},
    "reformer": {"axial_pos_shape": [32, 32], "axial_pos_embds_dim": [16, 16]},
    "zamba": {"num_hidden_layers": 4, "layers_block_type": ["linear_attention", "hybrid"] * 2, "mamba_dt_rank": 8,
              "attention_hidden_size": 64, "attention_head_dim": 16, "num_key_value_heads": 4,
              "use_mamba_kernels": False},
}  # fmt: skip
"""What else a type needs to be small, by dotted names."""


def small(kind: str) -> Any:
    """The configuration of a small model."""
    from transformers import AutoConfig

    from tests.helpers.small_settings import small_of
    from tests.models.language.checkpoints import SETTINGS, configuration

    is_tested = kind in SETTINGS and kind not in OWN
    settings = configuration(kind) if is_tested else small_of(kind, OWN.get(kind, {}), _FIRST.get(kind))
    return AutoConfig.for_model(kind, **settings)


_FIRST = {kind: {"text_config": {
    "model_type": part, "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0,
}} for kind, part in zip(_ASSISTANTS, ("gemma4_text", "gemma4_unified_text"), strict=True)}  # fmt: skip
"""Without which a type has no default configuration."""


def model_of(kind: str, seed: int = 0) -> Any:
    """A small model with random weights.

    Raises:
        ValueError: it is not small.
    """
    import torch
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    from tests.models.language.checkpoints import drawn

    config = small(kind)
    made = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    config = config.decoder if kind in _OF_A_DECODER else config
    with torch.device("meta"):
        count = sum(each.numel() for each in made._from_config(config).parameters())
    if count > _MOST_WEIGHTS:
        raise ValueError(f"{count} weights")
    torch.manual_seed(seed)
    return drawn(made._from_config(config).eval())


def tried(kind: str, *, build: bool = False) -> tuple[str, str]:
    """What becomes of a type: an outcome, and the reason."""
    from patcomp.errors import PatcompError, reason_of
    from patcomp_models.language import convert_language_model
    from tests.models.language.checkpoints import PROMPT, generated

    wanted, fault = None, ""
    for seed in range(_SEEDS):
        try:
            model = model_of(kind, seed)
        except Exception as error:  # settings that do not fit each other make models raise anything
            return "not built", reason_of(error)
        try:
            model.generation_config.forced_eos_token_id = None  # a rule of `generate` for the last token
            wanted = generated(model, PROMPT, _NEW)
        except Exception as error:  # as above, or the model needs more than tokens
            fault = reason_of(error)
            break
        if len({*wanted}) >= _VARIED:
            break
    if build:
        return ("not run", fault) if wanted is None else ("built", str(wanted))
    with TemporaryDirectory() as place:
        try:
            bundle = convert_language_model(model, out=Path(place) / "bundle", dtype="float32", max_context=64)
            made = bundle.generate(PROMPT, _NEW)
        except PatcompError as error:
            return "refused", str(error)
        except Exception as error:  # what is no refusal is a defect, and the others are tried, too
            return "error", reason_of(error)
        if wanted is None:
            return "not run", fault
        if made != wanted and made == _by_forward(model, PROMPT, made):
            return "exact", "by forward"
    return ("exact", "") if made == wanted else ("differs", f"{made} in place of {wanted}")


def _by_forward(model: Any, prompt: list[int], made: list[int]) -> list[int]:
    """The most probable tokens behind each token by one call of `forward`."""
    import torch

    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + made[:-1]]), use_cache=False).logits[0]
    return [int(token) for token in logits[len(prompt) - 1 :].argmax(-1)]


def _child(kind: str, build: bool, answer: Any) -> None:
    answer.send(tried(kind, build=build))


def in_a_child(kind: str, *, build: bool = False) -> tuple[str, str]:
    """`tried` in a process of its own, which is ended after some minutes."""
    context = multiprocessing.get_context("fork")  # so that imports are not repeated
    taken, given = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(kind, build, given))
    process.start()
    given.close()
    try:
        return taken.recv() if taken.poll(60 * _MINUTES) else ("not done", f"more than {_MINUTES} minutes")
    except EOFError:
        return "error", "its process died"
    finally:
        process.kill()
        process.join()


def page(rows: list[dict[str, Any]], version: str) -> str:
    """The page of all types."""
    counts = Counter(row["outcome"] for row in rows).most_common()
    intro = (
        f"`python -m benchmarks.causal_types --markdown` writes this page. transformers {version} has "
        f"{len(rows)} types of causal language models. A small model of each, with random weights, is converted in "
        "float32. *Exact* are those whose tokens are those of the model's own `generate`; with a star, those of one "
        "call of its `forward`, where the two differ. *Not built* and *not run* are those of which there is no such "
        "small model, or whose own `generate` does not run."
    )
    numbers = ", ".join(f"{count} {outcome}" for outcome, count in counts) + "."
    text = ["# The causal types of transformers", "", fill(intro, 120), "", numbers, ""]
    for outcome, _ in counts:
        some = [row for row in rows if row["outcome"] == outcome]
        text += [f"## {outcome.capitalize()}", ""]
        if outcome == "exact":
            names = [f"`{row['type']}`" + ("*" if row["reason"] else "") for row in some]
            text += [fill(", ".join(names).replace("`*", "`\\*") + ".", 120, break_on_hyphens=False), ""]
        else:
            text += ["| type | why |", "|---|---|"]
            text += [f"| `{row['type']}` | {_cell(row['reason'])} |" for row in some] + [""]
    return "\n".join(text)


def rows_of(text: str) -> dict[str, dict[str, Any]]:
    """The rows that a page was made of, by type, with the reasons that it shows."""
    rows = {}
    for section in text.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        exact = ((name, "by forward" if star else "") for name, star in re.findall(r"`([^`]+)`(\\\*)?", body))
        listed = ((name, reason.replace("\\|", "|")) for name, reason in re.findall(r"\| `([^`]+)` \| (.*) \|", body))
        for name, reason in exact if title == "Exact" else listed:
            rows[name] = {"type": name, "outcome": title.lower(), "reason": reason}
    return rows


def _cell(text: str) -> str:
    """The first sentence of a reason, for a table."""
    return text.split("\n")[0].split("; a bundle holds")[0].replace("|", "\\|").replace("<", "less than ")[:300]


def main() -> None:
    """Try types, and write lines or the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--type", nargs="+", default=[], help="only these")
    parser.add_argument("--build", action="store_true", help="convert nothing")
    parser.add_argument("--into", type=Path, help="a file with a line for each type")
    parser.add_argument("--markdown", action="store_true", help="write the page")
    options = parser.parse_args()
    declare_operators()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as TYPES

    import tests.helpers.faster_export  # noqa: F401  (imported before the children are forked)

    lines = options.into.read_text().splitlines() if options.into and options.into.exists() else []
    rows = {row["type"]: row for row in map(json.loads, lines)}
    waiting = options.type or [kind for kind in TYPES if kind not in rows]
    rows = rows_of(DOCUMENT.read_text()) | rows
    for kind in waiting:
        start = time.perf_counter()
        outcome, reason = in_a_child(kind, build=options.build)
        rows[kind] = {
            "type": kind, "outcome": outcome, "reason": reason, "seconds": round(time.perf_counter() - start)
        }  # fmt: skip
        print(*rows[kind].values(), sep=" | ", file=sys.stderr, flush=True)
        if options.into:
            with options.into.open("a") as file:
                file.write(json.dumps(rows[kind]) + "\n")
    if options.markdown:
        DOCUMENT.write_text(page([rows[kind] for kind in TYPES], transformers.__version__))


if __name__ == "__main__":
    main()
