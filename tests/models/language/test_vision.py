"""Vision-language models: every tower against the model's own generation, on the evaluator and on the runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import patcomp
from patcomp_models.checkpoints.loading import export_implementations
from patcomp_models.errors import LanguageModelError
from patcomp_models.language import TOWERS, check_bundle, convert_vision_language_model
from patcomp_models.language.bundle_assets import empty_states
from patcomp_models.language.contract import EMBEDDING, LOGITS, MAIN, TOWER
from patcomp_models.language.generation import Session, greedy
from patcomp_models.language.vision.decoder import EmbeddingDecoder, EmbeddingTable
from patcomp_models.language.vision.generating import embedded_call, features_of
from patcomp_models.language.vision.marks import Marks, as_digits, from_digits, marks_of_image, skipped_before
from patcomp_models.language.vision.own import OwnGridTower
from patcomp_models.language.vision.refused import WITHOUT_TOWER
from patcomp_models.language.vision.towers import check_known, tower_of
from tests.models.language.vision_checkpoints import (
    BEGIN,
    CONTEXT,
    IMAGE_TOKEN,
    PROCESSOR,
    SETTINGS,
    SHAPES,
    SIZE,
    VARIANTS,
    VOCABULARY,
    checkpoint,
    generated,
    pixels,
    prompt,
)
from tests.models.language.vision_types import SMALL_TYPES

NEW = 8
TOO_MANY = "Apple's engines take 2 states at most beside an image, and this model keeps"
STATES = {
    **dict.fromkeys(("mistral_large4", "dots3_note", "lfm2_vl", "lfm3_vl"), 3),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe", "minicpmv4_6", "minicpm_ocr", "nemotron_h_omni"), 4),
    **dict.fromkeys(("gemma4", "gemma4_unified", "gemma4 with experts, whose images see themselves"), 4),
}
"""The states of models that keep more than keys and values."""
READ_OTHERWISE = {"kimi_k25": "video_token_id"}
"""Tokens of a video for whose place a model reads the row of a pad token, if there is none."""
TOLERANCE = {
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe"), 2e-5),  # its own code computes the recurrence of a prompt in chunks
    "gemma4": 1e-4,  # one token of the model's own float32 is 8e-5 from its float64
}


def each_tower(*in_ci: str) -> pytest.MarkDecorator:
    """A parameter for every tower and variant; most are slow tests."""
    return pytest.mark.parametrize(
        "kind",
        [kind if kind in in_ci else pytest.param(kind, marks=pytest.mark.slow) for kind in (*SETTINGS, *VARIANTS)],
    )


def test_every_tower_is_tested() -> None:
    assert SETTINGS.keys() == TOWERS.keys()


def test_every_type_is_converted_or_refused_with_a_reason() -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as TYPES

    assert not TYPES.keys() - TOWERS.keys() - WITHOUT_TOWER.keys()
    with pytest.raises(LanguageModelError, match="cross attention"):
        check_known("mllama", "the model")


PATCH_ROWS = ("glm4v", "glm46v", "glmga", "exaone4_5", "lfm3_vl", "minimax_m3_vl", "cosmos3_edge", "paddleocr_vl",
              "kimi_k25", "dots3_note", "hunyuan_vl", "ernie4_5_vl_moe", "video_llama_3")  # fmt: skip


@pytest.mark.parametrize("kind", PATCH_ROWS)
def test_rows_are_those_of_the_image_processor(kind: str) -> None:
    """A model computes something of patches in any order, so its own logits do not show a wrong one."""
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES as PROCESSORS

    tower = tower_of(checkpoint(kind), SIZE)
    assert isinstance(tower, OwnGridTower)
    found = PROCESSORS[kind]
    processor = getattr(
        transformers, found["pil"] if isinstance(found, dict) and "pil" in found else found["torchvision"]
    )
    image = torch.randn(3, SIZE, SIZE)
    made = processor(
        do_resize=False, do_rescale=False, do_normalize=False, do_convert_rgb=False, patch_size=tower.patch_size,
        merge_size=tower.merged, temporal_patch_size=getattr(tower.vision, "temporal_patch_size", 1),
    )(image.numpy(), return_tensors="pt", input_data_format="channels_first")  # fmt: skip
    rows = tower.given(image[None], torch.tensor([[1]]))
    assert torch.equal(made["pixel_values"].reshape(rows["pixel_values"].shape), rows["pixel_values"])
    assert made["image_grid_thw"].tolist() == rows["image_grid_thw"].tolist()


@pytest.mark.parametrize("kind", ["gemma4", "gemma4_unified"])
def test_rows_are_those_of_the_image_processor_of_gemma(kind: str) -> None:
    from transformers import Gemma4ImageProcessorPil, Gemma4UnifiedImageProcessor

    tower = tower_of(checkpoint(kind), SIZE)
    image = torch.randn(3, SIZE, SIZE)
    processor = Gemma4ImageProcessorPil if kind == "gemma4" else Gemma4UnifiedImageProcessor
    made = processor(
        do_resize=False, do_rescale=False, do_convert_rgb=False, patch_size=tower.vision.patch_size,
        pooling_kernel_size=tower.vision.pooling_kernel_size, max_soft_tokens=70,
    )(image.numpy(), return_tensors="pt", input_data_format="channels_first")  # fmt: skip
    rows = tower.given(image[None], torch.tensor([[1]]))
    count = tower.patch_grid[0] ** 2
    assert torch.equal(made["pixel_values"][:, :count], rows["pixel_values"])
    assert torch.equal(made["image_position_ids"][:, :count], rows["image_position_ids"])
    assert bool((made["image_position_ids"][:, count:] == -1).all())


@each_tower("qwen3_vl", "gemma4")
@pytest.mark.filterwarnings("ignore:.*Apple's engines:patcomp.errors.ConversionWarning")
def test_logits(kind: str, tmp_path: Path) -> None:
    """In float32, of an image and 12 tokens in one call, and of 8 tokens behind it."""
    model: Any = checkpoint(kind)
    made = convert_vision_language_model(
        model, out=tmp_path / "bundle", dtype="float32", image_processor=PROCESSOR, check=False
    )
    tower = tower_of(model, SIZE)
    count = made.metadata["vision"]["image_token_count"]
    tokens, logits = generated(model, tower, prompt(count), pixels(), NEW)
    with torch.no_grad(), tower.mended():
        whole = model(input_ids=torch.tensor([prompt(count)]), **tower.given(pixels(), torch.tensor([prompt(count)])))
    wanted = torch.cat([whole.logits[0], logits[1:]]).numpy()
    assets = {role: patcomp.load(made.path / file) for role, file in made.metadata["assets"].items()}
    for way in ("evaluate", "run"):
        run = {role: getattr(asset, way) for role, asset in assets.items()}
        seen: list[np.ndarray] = []

        def main(name: str, inputs: Any, states: Any, run: Any = run, seen: Any = seen) -> Any:
            result = run[MAIN](inputs, states, name)
            seen.append(np.asarray(result[LOGITS])[0])
            return result

        features = features_of(run[TOWER], pixels().numpy())
        call = embedded_call(run[EMBEDDING], main, {IMAGE_TOKEN: features})
        empty = empty_states(assets[MAIN].described())
        session = Session(call, {MAIN: None}, empty, CONTEXT)
        assert greedy(session, prompt(count), NEW).tokens == tokens
        np.testing.assert_allclose(
            np.concatenate(seen), wanted, rtol=0, atol=TOLERANCE.get(kind, 1e-5) * np.abs(wanted).max()
        )


@each_tower()
@pytest.mark.filterwarnings("ignore:.*Apple's engines:patcomp.errors.ConversionWarning")
def test_half_precision(kind: str, tmp_path: Path) -> None:
    """The bundle is checked when it is made; here are its form and its tokens, up to ties of float16."""
    model: Any = checkpoint(kind)
    # transformers' own float16 is 0.056 of the largest logit off its float32 for Qwen3.5; Gemma 3n's tower is deep
    is_rough = kind.startswith(("qwen3_5", "gemma3n"))
    made = convert_vision_language_model(model, out=tmp_path / "bundle", image_processor=PROCESSOR, check=not is_rough)
    problems = [f"{TOO_MANY} {STATES[kind]}"] if kind in STATES else []
    assert [each.message for each in check_bundle(made.path)] == problems
    count = made.metadata["vision"]["image_token_count"]
    tokens = made.generate(prompt(count), NEW, pixels().numpy(), ignore_eos=True)
    wanted, logits = generated(model, tower_of(model, SIZE), prompt(count), pixels(), NEW)
    for number, (token, right) in enumerate(zip(tokens, wanted, strict=True)):
        if token != right:  # what follows continues another text
            assert float(logits[number].max() - logits[number, token]) < (0.2 if is_rough else 2e-2)
            break


def test_the_model_is_not_changed() -> None:
    """Neither by a tower, nor by calls that exchange its functions."""
    model: Any = checkpoint("qwen3_vl")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    inner = model.model.language_model
    with export_implementations(model), torch.no_grad():
        tower = tower_of(model, SIZE)
        decoder = EmbeddingDecoder(tower)
        decoder(decoder.example(3), torch.arange(3)[None], *decoder.states.zeros(8))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert "_deepstack_process" not in vars(inner)
    assert not inner._forward_pre_hooks


# ---- marks --------------------------------------------------------------------------------------------


def test_positions_of_two_images() -> None:
    """Of different shapes, as the model's own function has them, in one call and in calls that are cut at images."""
    model: Any = checkpoint("qwen2_5_vl")
    towers = [tower_of(model, shape) for shape in SHAPES]
    counts = [tower.token_count for tower in towers]
    tokens = torch.tensor([[5, 6, 7, *[IMAGE_TOKEN] * counts[0], 8, *[IMAGE_TOKEN] * counts[1], 9, 10]])
    kinds = towers[0].is_image(tokens)
    grids = torch.cat([tower.thw for tower in towers])
    wanted, _ = model.model.get_rope_index(tokens, mm_token_type_ids=kinds.int(), image_grid_thw=grids)
    marks = torch.zeros(1, tokens.shape[1], 4)
    marks[kinds] = torch.cat([marks_of_image(*tower.grid) for tower in towers]).float()
    for cuts in ([], [4], [3 + counts[0]], [20, 21, 30]):
        counted = torch.full((tokens.shape[1],), 99.0)  # what is behind the tokens of earlier calls does not count
        made = []
        for start, end in zip([0, *cuts], [*cuts, tokens.shape[1]], strict=True):
            part = Marks.of(marks[:, start:end])
            before, after = skipped_before(part.skipped(), counted[:end], start)
            counted[start:end] = after[0]
            made.append(part.positions(torch.arange(start, end)[None], before))
        assert torch.equal(torch.cat(made, -1).long(), wanted)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_digits_are_exact(dtype: torch.dtype) -> None:
    counts = torch.tensor([0.0, 1, 255, 256, 2049, 65535])
    assert torch.equal(from_digits(as_digits(counts).to(dtype)), counts)


@pytest.mark.parametrize(
    "kind",
    [
        *("ovis2", "gemma3n", "gemma4"),
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in SMALL_TYPES if kind != "ovis2"),
    ],
)
def test_every_token_behind_an_image(kind: str) -> None:
    """A model may read other rows than those of its table for tokens around an image."""
    model: Any = checkpoint(kind)
    tower = tower_of(model, SIZE)
    left = {IMAGE_TOKEN, getattr(model.config, READ_OTHERWISE.get(kind, ""), None)}
    if tower.begin is not None:  # Qwen Omni counts what these begin
        left |= {BEGIN, model.config.audio_token_id, model.config.audio_start_token_id}
    others = [token for token in range(VOCABULARY) if token not in left]
    ids = torch.tensor([[BEGIN, *[IMAGE_TOKEN] * tower.token_count, *others]])
    with export_implementations(model), torch.no_grad():
        with tower.mended():
            wanted = model(input_ids=ids, **tower.given(pixels(), ids)).logits
        decoder = EmbeddingDecoder(tower)
        embeddings = EmbeddingTable(tower)(ids)
        embeddings[0, ids[0] == IMAGE_TOKEN] = tower(pixels())[0]
        made = decoder(embeddings, torch.arange(ids.shape[1])[None], *decoder.states.zeros(ids.shape[1]))
    torch.testing.assert_close(made, wanted, rtol=0, atol=2e-5 * float(wanted.abs().max()))


@pytest.mark.parametrize("kind", SETTINGS)
def test_several_images(kind: str) -> None:
    """Two images in one call, of different shapes if the model takes them. In Gemma 3, each sees itself only; in Qwen's
    models, it has positions of its own."""
    model: Any = checkpoint(kind)
    tower = tower_of(model, SIZE)
    shapes = SHAPES if tower.takes_shapes else (SIZE, SIZE)
    towers = [tower_of(model, shape) for shape in (shapes[:1] * 2 if tower.takes_one_shape else shapes)]
    tower, first, second = towers[0], *([IMAGE_TOKEN] * each.token_count for each in towers)
    ids = torch.tensor([[*first, *second, 5, 6] if kind == "paligemma" else [BEGIN, *first, 6, BEGIN, *second, 7]])
    images = [torch.randn(1, 3, *each.shape) for each in towers]
    given = [each.given(image, ids) for each, image in zip(towers, images, strict=True)]
    axis = 1 if kind in ("idefics2", "idefics3", "smolvlm", "granite_docling") else 0
    axes = {"pixel_values": 3} if kind.startswith("minicpm") else {}  # the patches of all images are side by side
    both = {name: of_both(name, [each[name] for each in given], axes.get(name, axis)) for name in given[0]}
    with export_implementations(model), torch.no_grad():
        with tower.mended():
            wanted = model(input_ids=ids, **both).logits
        decoder = EmbeddingDecoder(tower)
        embeddings = EmbeddingTable(tower)(ids)
        features = [each(image)[0] for each, image in zip(towers, images, strict=True)]
        embeddings[0, ids[0] == IMAGE_TOKEN] = torch.cat(features)
        made = decoder(embeddings, torch.arange(ids.shape[1])[None], *decoder.states.zeros(ids.shape[1]))
    torch.testing.assert_close(made, wanted, rtol=0, atol=2e-5 * float(wanted.abs().max()))


def of_both(name: str, parts: list[Any], axis: int) -> Any:
    """An argument of a model for two images, from those for one."""
    if "token_type" in name or name == "attention_mask":
        return parts[0]
    if name != "mm_encoder_outputs":
        return joined(parts, axis, -1 if name == "image_position_ids" else 0)
    made, other = (each["image"] for each in parts)
    if made.pooler_output is not None:
        made.pooler_output = [*made.pooler_output, *other.pooler_output]
    else:
        layers = zip(made.deepstack_features, other.deepstack_features, strict=True)
        made.deepstack_features = [(layer, [*one, *two]) for (layer, one), (_, two) in layers]
    return {"image": made}


def joined(parts: list[torch.Tensor], axis: int, padding: int) -> torch.Tensor:
    """Tensors one behind the other; patches and images are padded to the same size."""
    sizes = [max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True)]
    for number, part in enumerate(parts):
        missing = [(0, 0 if place == axis else size - part.shape[place]) for place, size in enumerate(sizes)]
        parts[number] = torch.nn.functional.pad(
            part, [each for pair in reversed(missing) for each in pair], value=padding
        )
    return torch.cat(parts, axis)
