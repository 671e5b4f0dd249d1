"""`patcomp convert-lm`, `convert-vlm` and `generate`: language models from a folder, and a look at what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from patcomp.commands.common import (
    AllowMissing,
    AllowUnexpected,
    Calibrate,
    Catalogs,
    Compress,
    UsageError,
    Writer,
    load_catalogs,
    require_transformers,
    say,
    tell,
)
from patcomp.commands.progress import working


def convert_lm(
    folder: Annotated[
        str, typer.Argument(help="The folder of a checkpoint of transformers, a GGUF file, or an id of the hub.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of the bundle, which must not exist.")],
    max_context: Annotated[
        int | None,
        typer.Option(help="The most tokens; by default the model's own, and at most 4096 for neural_engine."),
    ] = None,
    dtype: Annotated[
        Literal["float16", "bfloat16", "float32"], typer.Option(help="The type of the weights and the cache.")
    ] = "float16",
    target: Annotated[
        Literal["gpu", "neural_engine"], typer.Option(help="The form: one function for macOS, or many for iOS.")
    ] = "gpu",
    quantize_embeddings: Annotated[
        bool, typer.Option(help="Whether the Neural Engine's table of embeddings is of int8.")
    ] = True,
    compress: Compress = None,
    calibrate: Calibrate = None,
    tokenizer: Annotated[
        bool, typer.Option(help="Whether the bundle gets the folder's tokenizer; without one it takes token ids only.")
    ] = True,
    prefill: Annotated[
        int | None, typer.Option(help="Add a function for so many tokens; main then takes one token.")
    ] = None,
    verify: Annotated[
        int | None, typer.Option(help="Add a function for one token and so many drafted ones behind it.")
    ] = None,
    hidden: Annotated[
        bool, typer.Option("--hidden", help="Give each function the hidden state before the head as an output.")
    ] = False,
    draft: Annotated[
        str | None,
        typer.Option(help="The folder or id of a smaller model, or mtp: the function draft of the same asset."),
    ] = None,
    window_caches: Annotated[
        bool, typer.Option("--window-caches", help="Layers with a sliding window keep the tokens of the window only.")
    ] = False,
    absorb_latents: Annotated[
        bool, typer.Option("--absorb-latents", help="Latent attention attends to the latents in the cache.")
    ] = False,
    embeddings: Annotated[
        Literal["inside", "outside"],
        typer.Option(help="outside: per-layer embeddings (Gemma 3n, 4) are a file of the bundle and an input."),
    ] = "inside",
    float32: Annotated[
        list[str] | None,
        typer.Option(
            help="A module, or a pattern as *.self_attn, that computes in float32; may be given several times."
        ),
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(help="A prompt on which the bundle is compared with the model; by default a few tokens."),
    ] = None,
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not compare the bundle with the model.")] = False,
    catalog: Catalogs = None,
    allow_missing: AllowMissing = None,
    allow_unexpected: AllowUnexpected = None,
    expand: Annotated[
        bool,
        typer.Option("--expand", help="Make floats of weights whose bits cannot be kept, such as IQ2_XXS of GGUF."),
    ] = False,
    trust_remote_code: Annotated[bool, typer.Option(help="Run Python code of the folder.")] = False,
    writer: Writer = None,
) -> None:
    """Convert a causal language model to a bundle that Apple's Swift package loads."""
    require_transformers("a language model")
    from patcomp.language import check_bundle, convert_language_model

    if check is not None and no_check:
        raise UsageError("--check and --no-check exclude each other")
    bundle = convert_language_model(
        folder, target, out=output, max_context=max_context, dtype=dtype, trust_remote_code=trust_remote_code,
        quantize_embeddings=quantize_embeddings, compress=compress, calibrate=calibrate,
        tokenizer=None if tokenizer else False, expand=expand,
        allow_missing=allow_missing or (), allow_unexpected=allow_unexpected or (), progress=working, writer=writer,
        prefill=prefill, verify=verify, hidden=hidden, draft=draft, check=not no_check if check is None else check,
        catalog=load_catalogs(catalog), float32=float32 or (), window_caches=window_caches,
        absorb_latents=absorb_latents,
        embeddings=embeddings,
    )  # fmt: skip
    say(f"{bundle.path}: {bundle.metadata['language']['max_context_length']} tokens at most")
    if bundle.metadata["compression"] is None:
        say("weights have 16 or 32 bits; `patcomp compress BUNDLE --config 4bit -o SMALL` makes them smaller")
    for problem in check_bundle(bundle.path):
        say(f"warning: {problem}")


def convert_vlm(
    folder: Annotated[str, typer.Argument(help="The folder of a checkpoint of transformers, or an id of the hub.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of the bundle, which must not exist.")],
    image_size: Annotated[
        int | None, typer.Option(help="The side of the square image, in pixels; by default the image processor's.")
    ] = None,
    max_context: Annotated[int | None, typer.Option(help="The most tokens; by default the model's own.")] = None,
    dtype: Annotated[
        Literal["float16", "bfloat16", "float32"], typer.Option(help="The type of the weights and the cache.")
    ] = "float16",
    tokenizer: Annotated[
        bool, typer.Option(help="Whether the bundle gets the folder's tokenizer; without one it takes token ids only.")
    ] = True,
    compress: Compress = None,
    allow_missing: AllowMissing = None,
    allow_unexpected: AllowUnexpected = None,
    draft: Annotated[
        Literal["mtp"] | None, typer.Option(help="mtp: the checkpoint's head that foresees tokens as a function.")
    ] = None,
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not compare the bundle with the model.")] = False,
    writer: Writer = None,
) -> None:
    """Convert a model of images and text to a bundle that Apple's Swift package loads."""
    require_transformers("a vision-language model")
    from patcomp.language import check_bundle, convert_vision_language_model

    bundle = convert_vision_language_model(
        folder, out=output, image_size=image_size, max_context=max_context, dtype=dtype,
        tokenizer=None if tokenizer else False, compress=compress, allow_missing=allow_missing or (),
        allow_unexpected=allow_unexpected or (), draft=draft, check=not no_check, progress=working, writer=writer,
    )  # fmt: skip
    metadata = bundle.metadata
    vision, most = metadata["vision"], metadata["language"]["max_context_length"]
    say(
        f"{bundle.path}: images of {vision['image_size']} x {vision['image_size']} pixels, "
        f"{vision['image_token_count']} tokens each; {most} tokens at most"
    )
    for problem in check_bundle(bundle.path):
        say(f"warning: {problem}")


def generate(
    bundle: Annotated[Path, typer.Argument(help="The folder of a bundle.")],
    prompt: Annotated[
        str, typer.Option(help="The text to continue; with an image, it has the image token at the image's place.")
    ],
    image: Annotated[
        list[Path] | None,
        typer.Option(help="An image for a bundle of convert-vlm, read by Pillow; may be given several times."),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="How many tokens to generate at most.")] = 16,
    draft: Annotated[
        Path | None, typer.Option(help="The bundle of a smaller model, which drafts tokens; the text is the same.")
    ] = None,
    own_draft: Annotated[bool, typer.Option("--own-draft", help="Draft with the bundle's function draft.")] = False,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Go on behind a token that ends a text (stop_token_ids).")
    ] = False,
) -> None:
    """Continue a text by the most probable tokens, on this machine's Core AI runtime; for checks, not for speed."""
    from patcomp.bundle_folders.json_files import metadata_in
    from patcomp.language import Bundle

    if (kind := metadata_in(bundle).get("kind")) not in ("llm", "vlm"):
        raise UsageError(f"{bundle} is a bundle of the kind {kind}, and not of a language model")
    if draft is not None and own_draft:
        raise UsageError("--draft and --own-draft exclude each other")
    found = Bundle(bundle)
    made = found.generation(prompt, max_new_tokens, image, draft=True if own_draft else draft, ignore_eos=ignore_eos)
    tell(found.decoded(made.tokens))
    if own_draft or draft is not None:
        say(f"{len(made.tokens)} tokens in {made.calls} calls of the model")
