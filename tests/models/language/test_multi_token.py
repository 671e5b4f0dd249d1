"""Heads that foresee several tokens: as drafts in the asset, beside the arithmetic of their authors, and left out."""

from __future__ import annotations

import json
import re
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from patcomp import load
from patcomp.errors import ConversionWarning
from patcomp_models.checkpoints.agreement import STRICT
from patcomp_models.checkpoints.left_out import foreseeing, heads_in, notes_on_weights
from patcomp_models.checkpoints.quantized.formats.float8 import Float8
from patcomp_models.language import (
    LanguageModelError,
    check_bundle,
    convert_language_model,
    convert_vision_language_model,
)
from patcomp_models.language.contract import drafts_in
from patcomp_models.language.generation import (
    Drafting,
    Heads,
    HiddenStates,
    Session,
    draft_without,
    greedy,
    speculative,
)
from patcomp_models.language.multi_token import HeadDecoder, load_head, own_name
from patcomp_models.language.sources import language_model_of, source_of
from patcomp_models.language.text_part import text_part
from patcomp_models.language.vision.decoder import EmbeddedHead, EmbeddingTable
from patcomp_models.language.vision.towers import tower_of
from tests.models.language import vision_checkpoints
from tests.models.language.checkpoints import PROMPT, checkpoint, generated
from tests.models.language.stored import described

LAYERS = 2
"""Of the models of these tests."""
BEHIND = ("deepseek_v3", "glm4_moe")
"""Models whose heads are layers behind the last; those of Qwen are named `mtp`."""


def with_head(path: Path, kind: str, heads: int = 1, **others: Tensor) -> tuple[Any, dict[str, Tensor]]:
    """A checkpoint whose heads are like its last layer, with weights of their own; the model and the heads' weights."""
    model: Any = checkpoint(kind)
    model.save_pretrained(path)
    return model, put_heads(path, kind, heads, **others)


def put_heads(path: Path, kind: str, heads: int = 1, inner: str = "model", **others: Tensor) -> dict[str, Tensor]:
    """Give a checkpoint heads that foresee tokens; their weights."""
    config = json.loads((path / "config.json").read_text())
    config.pop("mlp_layer_types", None)  # which would be of the model's layers only
    (path / "config.json").write_text(json.dumps(config))
    weights = load_file(path / "model.safetensors")
    width, last = config.get("text_config", config)["hidden_size"], f"{inner}.layers.{LAYERS - 1}."
    made: dict[str, Tensor] = {}
    for depth in range(heads):
        place = f"model.layers.{LAYERS + depth}." if kind in BEHIND else f"mtp.layers.{depth}."
        names = ("enorm", "hnorm", "eh_proj", "shared_head.norm") if kind in BEHIND else (
            "pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm"
        )  # fmt: skip
        for name, shape in zip(names, [(width,), (width,), (width, 2 * width), (width,)], strict=True):
            made[f"{place if kind in BEHIND else 'mtp.'}{name}.weight"] = torch.empty(shape)
        made |= {name.replace(last, place): torch.empty_like(each) for name, each in weights.items() if last in name}
    for each in made.values():
        if each.ndim > 1:
            nn.init.normal_(each, 0, each.shape[-1] ** -0.5)
        else:
            nn.init.uniform_(each, 0.5, 1.5)
    save_file({**weights, **made, **others}, path / "model.safetensors", {"format": "pt"})
    return made


def hidden_of(model: Any, tokens: Tensor) -> Tensor:
    """What the head of the logits takes."""
    with torch.no_grad():
        found: Tensor = model.model(tokens).last_hidden_state
    return found


def authors(model: Any, heads: dict[str, Tensor], tokens: Tensor, hidden: Tensor) -> Tensor:
    """The logits of a head of Qwen as its authors compute them: one more layer of the model's classes."""
    config, base = model.config, model.model
    layer = type(base.layers[-1])(config, LAYERS - 1).eval()
    layer.load_state_dict(
        {name.removeprefix("mtp.layers.0."): each for name, each in heads.items() if name.startswith("mtp.layers.0.")}
    )

    def normed(x: Tensor, name: str) -> Tensor:
        root = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps)
        return root * (1 + heads[f"mtp.{name}.weight"])

    both = normed(base.embed_tokens(tokens), "pre_fc_norm_embedding"), normed(hidden, "pre_fc_norm_hidden")
    count = tokens.shape[1]
    places = torch.arange(count)[None]
    mask = torch.full((1, 1, count, count), -torch.inf).triu(1)
    rotary = base.rotary_emb(hidden, places)
    with torch.no_grad():
        x = layer(torch.cat(both, -1) @ heads["mtp.fc.weight"].T, position_embeddings=rotary, attention_mask=mask)
        return model.lm_head(normed(x[0] if isinstance(x, tuple) else x, "norm"))  # type: ignore[no-any-return]


KINDS = ("qwen3_5_text", *(pytest.param(kind, marks=pytest.mark.slow) for kind in BEHIND))


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_computes_what_its_authors_compute(kind: str, tmp_path: Path) -> None:
    """Of Qwen as its authors do, of DeepSeek as transformers' own class of such heads does."""
    model, heads = with_head(tmp_path, kind)
    head = load_head(model, [tmp_path / "model.safetensors"], None, "float32", "")
    tokens = torch.tensor([PROMPT])
    hidden = hidden_of(model, tokens[:, :-1])
    decoder = HeadDecoder(head)
    count = len(PROMPT) - 1
    with torch.no_grad():
        logits, after = decoder(tokens[:, 1:], torch.arange(count)[None], hidden, *decoder.states.zeros(count + 1))
    if kind in BEHIND:
        from transformers.cache_utils import MtpCache
        from transformers.modeling_layers import MtpModel

        model.config.name_or_path, model.config.dtype = str(tmp_path), torch.float32
        if kind == "deepseek_v3":
            model.config.mtp_mlp_layer_types = ["sparse"]
        model._keys_to_ignore_on_load_unexpected = {rf"model\.layers\.{LAYERS}.*"}
        model.set_attn_implementation("eager")
        theirs = MtpModel.from_pretrained(model).eval()
        cache = MtpCache(config=model.config.get_mtp_config())
        with torch.no_grad():
            wanted = theirs.forward_layer(0, hidden, 1 + torch.arange(count)[None], cache, input_ids=tokens[:, 1:])
            torch.testing.assert_close(after, wanted, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(logits, model.lm_head(wanted), rtol=1e-4, atol=1e-5)
    else:
        torch.testing.assert_close(logits, authors(model, heads, tokens[:, 1:], hidden), rtol=1e-4, atol=1e-5)
    assert head.get_input_embeddings() is model.get_input_embeddings()
    assert head.get_output_embeddings() is model.get_output_embeddings()


def test_frequencies_stay_in_float32(tmp_path: Path) -> None:
    model, _ = with_head(tmp_path, "deepseek_v3")
    head: Any = load_head(model, [tmp_path / "model.safetensors"], None, "float16", "")
    assert head.model.layers[0].self_attn.o_proj.weight.dtype == head.projection.weight.dtype == torch.float16
    torch.testing.assert_close(head.model.rotary_emb.inv_freq, model.model.rotary_emb.inv_freq, rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["qwen3_5_text", "deepseek_v3"])
def test_drafting_with_a_head(kind: str, tmp_path: Path) -> None:
    model, _ = with_head(tmp_path / "model", kind)
    bundle = convert_language_model(
        tmp_path / "model", out=tmp_path / "bundle", dtype="float32", draft="mtp", max_context=64, tokenizer=False
    )
    assert [*bundle.metadata["language"]["function_map"]] == ["main", "draft"]
    tokens = generated(model, PROMPT, 11)
    made = bundle.generation(PROMPT, 11, draft=True)
    assert made.tokens == tokens
    assert bundle.generate(PROMPT, 11) == tokens
    described = load(bundle.asset).described("draft")
    assert [*described.input_names] == ["input_ids", "position_ids", "hidden"]
    assert [*described.output_names] == ["logits", "hidden"]
    assert [problem for problem in check_bundle(bundle.path) if "float16" not in problem.message] == []


def test_heads_in_a_row(tmp_path: Path) -> None:
    """Each takes the hidden state of the one before and the next token, as the heads of transformers' own class do,
    also behind tokens that were wrong."""
    from transformers.cache_utils import MtpCache
    from transformers.modeling_layers import MtpModel

    kind = "glm4_moe"
    model, _ = with_head(tmp_path / "model", kind, heads=3)
    bundle = convert_language_model(
        tmp_path / "model", out=tmp_path / "bundle", dtype="float32", draft="mtp", max_context=64, tokenizer=False
    )
    assert bundle.metadata["language"]["function_map"] == {"main": ["main"], "draft": ["draft", "draft2", "draft3"]}
    assert [*load(bundle.asset).described("draft2").state_names] == ["draft2KeyCache", "draft2ValueCache"]
    assert [problem for problem in check_bundle(bundle.path) if "float16" not in problem.message] == []

    model.config.name_or_path, model.config.dtype = str(tmp_path / "model"), torch.float32
    model.config.num_nextn_predict_layers = 3
    model._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{LAYERS + each}.*" for each in range(3)]
    model.set_attn_implementation("eager")
    theirs = MtpModel.from_pretrained(model).eval()
    asked: list[tuple[list[int], list[int]]] = []

    class Recorded(Heads):
        def __call__(self, tokens: Any, count: int) -> list[int]:
            made = super().__call__(tokens, count)
            asked.append(([*tokens], made))
            return made

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("patcomp_models.language.bundle.Heads", Recorded)
        made = bundle.generation(PROMPT, 12, draft=True)
    assert made.tokens == generated(model, PROMPT, 12)
    assert len(asked) > 3
    for tokens, foreseen in asked:
        text = torch.tensor([tokens])
        with torch.no_grad():
            found, _, _ = theirs(
                input_ids=text[:, 1:], last_hidden_states=hidden_of(model, text[:, :-1]), attention_mask=None,
                position_ids=1 + torch.arange(len(tokens) - 1)[None],
                mtp_cache=MtpCache(config=model.config.get_mtp_config()),
            )  # fmt: skip
        assert foreseen == found[0, : len(foreseen)].tolist()
        assert len(foreseen) == 3


def test_a_head_reads_features_and_positions_of_an_image(tmp_path: Path) -> None:
    """As one more layer behind the model, which takes the embeddings and positions of its own tokens."""
    model: Any = vision_checkpoints.checkpoint("qwen3_5")
    model.save_pretrained(tmp_path)
    put_heads(tmp_path, "qwen3_5", inner="model.language_model")
    head: Any = load_head(text_part(model).model, [tmp_path / "model.safetensors"], None, "float32", "")
    tower = tower_of(model, vision_checkpoints.SIZE)
    pixels, tokens = vision_checkpoints.pixels(), torch.tensor([vision_checkpoints.prompt(tower.token_count)])
    is_image, count = tower.is_image(tokens), tokens.shape[1] - 1
    hidden = torch.randn(1, count, 32)
    decoder = EmbeddedHead(head, tower)
    with torch.no_grad():
        rows = EmbeddingTable(tower)(tokens)
        rows[is_image] = tower(pixels)[0]
        given = torch.arange(count)[None], hidden, *decoder.states.zeros(count + 1)
        made, _ = decoder(rows[:, 1:], *given)
        grid = tower.given(pixels, tokens)["image_grid_thw"]
        places, _ = model.model.get_rope_index(tokens, is_image.int(), image_grid_thw=grid)
        joined = decoder.joined(rows[:, 1:, :32], hidden)
        wanted = head(inputs_embeds=joined, position_ids=places[:, :, 1:], use_cache=False).logits
    torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_head_beside_an_image(tmp_path: Path) -> None:
    """It reads the features of the image, and positions of rows and columns."""
    path = vision_checkpoints.folder(tmp_path / "model", "qwen3_5")
    put_heads(path, "qwen3_5", inner="model.language_model")
    bundle = convert_vision_language_model(path, out=tmp_path / "bundle", dtype="float32", max_context=64, draft="mtp")
    assert [*bundle.metadata["language"]["function_map"]] == ["main", "draft"]
    image = vision_checkpoints.pixels().numpy()
    for prompt in ([5, 6, vision_checkpoints.IMAGE_TOKEN, 7, 8, 9], [vision_checkpoints.IMAGE_TOKEN, 7, 8, 9]):
        made = bundle.generation(prompt, 9, image, draft=True)
        assert made.tokens == bundle.generate(prompt, 9, image)
    assert [
        each for each in check_bundle(bundle.path) if "float16" not in each.message and "states" not in each.message
    ] == []
    with pytest.warns(ConversionWarning, match=r"left out: mtp\.fc"):
        convert_vision_language_model(path, out=tmp_path / "plain", max_context=64, check=False)


def foreseeing_functions(vocabulary: int, *, fixed: bool) -> tuple[Session, Session, list[int]]:
    """A model, and a head that foresees its tokens from the hidden state, if it gets those of the tokens in front."""
    keys = {"keyCache": np.zeros((1, 1, 1, 0, 1), np.int64)}
    lengths: list[int] = []

    def best(known: int) -> int:
        return (known * 7 + 3) % vocabulary

    def model(name: str, inputs: Any, states: Any) -> Any:
        tokens, total = inputs["input_ids"][0], inputs["position_ids"].shape[1]
        lengths.append(len(tokens))
        logits, hidden = np.zeros((1, len(tokens), vocabulary)), np.zeros((1, len(tokens), 1))
        for row, token in enumerate(tokens):
            place = total - len(tokens) + row
            states["keyCache"][0, 0, 0, place, 0] = token * (place + 1)
            if fixed:
                states["sum"] = states["sum"] + token * (place + 1)
            known = states["sum"][0] if fixed else int(states["keyCache"][0, 0, 0, : place + 1, 0].sum())
            logits[0, row, best(known)], hidden[0, row, 0] = 1, known
        return {"logits": logits, "hidden": hidden}

    def head(name: str, inputs: Any, states: Any) -> Any:
        tokens, total = inputs["input_ids"][0], inputs["position_ids"].shape[1]
        hidden = inputs["hidden"].copy()
        assert hidden.shape == (1, len(tokens), 1)
        logits = np.zeros((1, len(tokens), vocabulary))
        for row, token in enumerate(tokens):
            place = total - len(tokens) + row
            states["keyCache"][0, 0, 0, place, 0] = hidden[0, row, 0]
            before = states["keyCache"][0, 0, 0, place - 1, 0] if place else 0
            assert not place or (hidden[0, row, 0] - before) % (place + 1) == 0  # its cache has the model's tokens
            hidden[0, row, 0] += token * (place + 2)
            logits[0, row, best(int(hidden[0, row, 0]))] = 1
        return {"logits": logits, "hidden": hidden}

    sums = {"sum": np.zeros(1, np.int64)} if fixed else {}
    return Session(model, {"main": None}, {**keys, **sums}, 64), Session(head, {"draft": None}, keys, 64), lengths


@pytest.mark.parametrize("fixed", [False, True])
def test_hidden_states_reach_the_head(fixed: bool) -> None:
    """All that it foresees is right, behind its own tokens and behind wrong ones, so that calls are few."""
    prompt = [1, 2, 3, 4, 5, 6]
    session, _, _ = foreseeing_functions(11, fixed=fixed)
    wanted = greedy(session, prompt, 20).tokens
    for wrong_at, least in ((None, 1 + 19 // 5 + 1), (9, 7)):
        session, own, lengths = foreseeing_functions(11, fixed=fixed)
        states = HiddenStates()
        session.call, own.call = states.of_model(session.call), states.to_head(own.call)
        drafting = Drafting(own, skipped=1)

        def draft(tokens: Any, count: int, at: Any = wrong_at, drafting: Drafting = drafting) -> list[int]:
            made = drafting(tokens, count)
            return [(each + (len(tokens) + place == at)) % 11 for place, each in enumerate(made)]

        made = speculative(session, draft, prompt, 20)
        assert made.tokens == wanted
        assert made.calls == len(lengths) <= least


@pytest.mark.parametrize("takes_head", [False, True])
def test_weights_that_the_model_does_not_have_are_named(takes_head: bool, tmp_path: Path) -> None:
    with_head(tmp_path, "deepseek_v3", heads=2)
    source = source_of(tmp_path, lambda what: nullcontext(), trust_remote_code=False)
    wanted = [] if takes_head else [
        "heads that foresee several tokens (MTP) are left out: model.layers.2 (30 weights), "
        "model.layers.3 (30 weights); draft='mtp' (--draft mtp) makes functions of them"
    ]  # fmt: skip
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        _, notes = language_model_of(source, "float32", STRICT, trust_remote_code=False, takes_head=takes_head)
    assert [*notes] == wanted
    assert [str(each.message) for each in seen if each.category is ConversionWarning] == wanted


def test_a_draft_without_the_tokens_of_images() -> None:
    assert draft_without({90}, lambda tokens, count: [*tokens, count])([1, 90, 90, 2], 3) == [1, 2, 3]


def test_names() -> None:
    """Heads in the names of several architectures, and what only looks like one."""
    qwen = ["mtp.fc.weight", "mtp.layers.0.mlp.up_proj.weight", "mtp.layers.1.mlp.up_proj.weight"]
    layer = ["model.layers.61.enorm.weight", "model.layers.61.mlp.up_proj.weight", "model.layers.62.eh_proj.weight"]
    other = ["model.layers.6.mlp.up_proj.weight", "visual.layers.61.mlp.weight", "model.attempt.weight"]
    assert foreseeing([*qwen, *layer, *other]) == sorted([*qwen, *layer])
    assert foreseeing(other) == []
    assert heads_in([*qwen, *other]) == [qwen[:2], [qwen[0], qwen[2]]]
    assert heads_in([*layer, *other]) == [layer[:2], layer[2:]]
    assert [own_name(name) for name in (qwen[0], qwen[2], *layer)] == [
        "projection.weight", "model.layers.0.mlp.up_proj.weight", "embedding_norm.weight",
        "model.layers.0.mlp.up_proj.weight", "projection.weight",
    ]  # fmt: skip
    with pytest.raises(
        LanguageModelError, match=r"of a form that is not known, with the weight model\.mtp_block\.0\.w"
    ):
        own_name("model.mtp_block.0.weight")

    class Model(nn.Module):
        _keys_to_ignore_on_load_unexpected = ("^mtp.*", "visual", "bias")

    names = [*qwen, *other, "h.0.attn.bias", "h.0.bias"]
    assert notes_on_weights(Model(), names, taken=1) == [
        "heads that foresee several tokens (MTP) are left out behind the first: mtp.layers.1 (1 weights)",
        "weights that Model has no place for are left out: h.0 (1 weights), visual.layers.61 (1 weights)",
    ]


@pytest.mark.parametrize("given", ["object", "folder"])
def test_no_head(given: str, tmp_path: Path) -> None:
    model: Any = checkpoint("llama")
    model.save_pretrained(tmp_path / "model")
    message = {
        "object": "draft='mtp' goes with the folder of a checkpoint: transformers does not load heads",
        "folder": f"'{tmp_path / 'model'}' has no head that foresees several tokens (MTP), whose weights are named",
    }[given]
    with pytest.raises(LanguageModelError, match=re.escape(message)):
        convert_language_model(
            model if given == "object" else tmp_path / "model", out=tmp_path / "bundle", draft="mtp", tokenizer=False
        )


def test_a_table_and_a_head_of_its_own(tmp_path: Path) -> None:
    """They are the model's where they are the same, and its own where they are not."""
    model: Any = checkpoint("deepseek_v3")
    table, place = model.get_input_embeddings().weight.detach().clone(), f"model.layers.{LAYERS}."
    others = {
        f"{place}embed_tokens.weight": table,
        f"{place}shared_head.head.weight": 2 * model.lm_head.weight.detach(),
    }
    model, _ = with_head(tmp_path, "deepseek_v3", **others)
    head: Any = load_head(model, [tmp_path / "model.safetensors"], None, "float32", "")
    assert head.get_input_embeddings() is model.get_input_embeddings()
    torch.testing.assert_close(head.lm_head.weight, 2 * model.lm_head.weight)


def test_a_head_in_few_bits(tmp_path: Path) -> None:
    """As in DeepSeek's own checkpoint: experts and projections in float8, the rest in floats."""
    model, heads = with_head(tmp_path, "deepseek_v3")
    stored, rounded = dict[str, Tensor](), dict[str, Tensor]()
    for name, each in heads.items():
        if name.endswith("_proj.weight") and "eh_proj" not in name:
            stored[name] = each.to(torch.float8_e4m3fn)
            stored[f"{name}_scale_inv"] = torch.full([1, 1], 0.5)
            rounded[name] = stored[name].float() * 0.5
    assert len(stored) == 2 * (3 * 5 + 4)
    made = []
    for number, weights in enumerate((stored, rounded)):
        file = tmp_path / f"{number}.safetensors"
        save_file({**heads, **weights}, file)
        form = described(Float8, "fp8", weight_block_size=[128, 128]) if weights is stored else None
        made.append(load_head(model, [file], form, "float32", ""))
    tokens = torch.tensor([PROMPT])
    with torch.no_grad():
        packed, wide = (HeadDecoder(head).embeddings(tokens, hidden_of(model, tokens)) for head in made)
        assert torch.equal(packed, wide)
        logits = [head(inputs_embeds=wide, use_cache=False).logits for head in made]
    torch.testing.assert_close(logits[0], logits[1])
    assert not [name for name, _ in made[0].named_parameters() if "down_proj" in name]


def test_functions_of_drafts() -> None:
    """Also those of one head alone, whose session is not the model's."""
    assert drafts_in(["main", "draft2", "main_draft", "draft", "draft10", "drafts"]) == ["draft", "draft2", "draft10"]
    assert drafts_in(["draft2"]) == ["draft2"]
