"""`patcomp convert-lm`, `convert-vlm` and `generate`: language models from a folder, and a look at what they say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from patcomp.commands.common import UsageError, load_catalogs, require_transformers, say, tell
from patcomp.commands.options import takes_options
from patcomp.commands.progress import working
from patcomp.commands.subjects import Subject, subject_of
from patcomp_models.commands.bundles import settings_in
from patcomp_models.options import LanguageOptions, VisionOptions

NoCheck = Annotated[bool, typer.Option("--no-check", help="Do not compare the bundle with the model.")]


@takes_options
def convert_lm(*, options: LanguageOptions, no_check: NoCheck = False) -> None:
    """Convert a causal language model to a bundle that Apple's Swift package loads.

    $ patcomp convert-lm Qwen3-0.6B -o bundles/qwen3 --max-context 4096 --compress 4bit
    """
    require_transformers("a language model")
    _check_source(options)
    from patcomp_models.language import check_bundle, convert_language_model

    if options.check is not True and no_check:
        raise UsageError("--check and --no-check exclude each other")
    given = _arguments(options, no_check) | {"catalog": load_catalogs(options.catalog)}
    bundle = convert_language_model(**given)
    say(f"{bundle.path}: {bundle.metadata['language']['max_context_length']} tokens at most")
    if bundle.metadata["compression"] is None:
        say("weights have 16 or 32 bits; `patcomp compress BUNDLE --config 4bit -o SMALL` makes them smaller")
    for problem in check_bundle(bundle.path):
        say(f"warning: {problem}")


@takes_options
def convert_vlm(*, options: VisionOptions, no_check: NoCheck = False) -> None:
    """Convert a model of images and text to a bundle that Apple's Swift package loads.

    $ patcomp convert-vlm SmolVLM-256M -o bundles/smolvlm
    """
    require_transformers("a vision-language model")
    _check_source(options)
    from patcomp_models.language import check_bundle, convert_vision_language_model

    bundle = convert_vision_language_model(**_arguments(options, no_check))
    metadata = bundle.metadata
    vision, most = metadata["vision"], metadata["language"]["max_context_length"]
    say(
        f"{bundle.path}: images of {vision['image_size']} x {vision['image_size']} pixels, "
        f"{vision['image_token_count']} tokens each; {most} tokens at most"
    )
    for name, each in vision.get("image_shapes", {}).items():
        say(f"{name}: images of {each['height']} x {each['width']} pixels, {each['image_token_count']} tokens each")
    for name, each in vision.get("video", {}).get("shapes", {}).items():
        say(f"{name}: moments of videos of {each['height']} x {each['width']} pixels")
    for problem in check_bundle(bundle.path):
        say(f"warning: {problem}")


def _check_source(options: LanguageOptions | VisionOptions) -> None:
    """Check before PyTorch is imported that there is a folder which may hold a checkpoint.

    Raises:
        LanguageModelError: there is none.
    """
    from patcomp.hub import is_hub_id
    from patcomp_models.checkpoints.contents import check_contents, is_adapter
    from patcomp_models.checkpoints.gguf.folder import is_gguf

    given = str(options.folder_or_model)
    merges = isinstance(options, LanguageOptions) and is_adapter(Path(given))
    if not is_hub_id(given) and not is_gguf(given) and not merges:
        check_contents(Path(given))


def _arguments(options: LanguageOptions | VisionOptions, no_check: bool) -> dict[str, Any]:
    """The arguments in Python for the options of a command."""
    own = {"tokenizer": None if options.tokenizer else False, "progress": working}
    return vars(options) | own | ({"check": False} if no_check else {})


def generate(
    bundle: Annotated[Path, typer.Argument(help="The folder of a bundle.")],
    prompt: Annotated[
        str, typer.Option(help="The text to continue; with an image, it has the image token at the image's place.")
    ],
    image: Annotated[
        list[Path] | None,
        typer.Option(help="An image for a bundle of convert-vlm, read by Pillow; may be given several times."),
    ] = None,
    audio: Annotated[
        list[Path] | None,
        typer.Option(help="A recording (WAVE) for a bundle that takes sound; may be given several times."),
    ] = None,
    video: Annotated[
        list[Path] | None,
        typer.Option(help="A folder with the frames of a video as images, in the order of their names."),
    ] = None,
    fps: Annotated[float | None, typer.Option(help="How many of the frames are a second.")] = None,
    max_new_tokens: Annotated[int, typer.Option(help="How many tokens to generate at most.")] = 16,
    draft: Annotated[
        Path | None, typer.Option(help="The bundle of a smaller model, which drafts tokens; the text is the same.")
    ] = None,
    own_draft: Annotated[bool, typer.Option("--own-draft", help="Draft with the bundle's function draft.")] = False,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Go on behind a token that ends a text (stop_token_ids).")
    ] = False,
    adapter: Annotated[str | None, typer.Option(help="An adapter of the bundle, by its name (--adapters).")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Diffusion language models: a setting of the loop, steps=64, or seed=1; may be repeated."
        ),
    ] = None,
) -> None:
    """Continue a text by the most probable tokens, or by diffusion, on this machine's Core AI runtime; for checks, not
    for speed.

    $ patcomp generate bundles/qwen3 --prompt 'The capital of France is'
    """
    subject_of(str(bundle), "generate", (Subject.BUNDLE,))
    from patcomp_models.checkpoints.json_files import metadata_in

    metadata = metadata_in(bundle)
    kind = metadata.get("kind")
    if kind == "text_diffusion":
        if image or audio or video or fps is not None or draft or own_draft or ignore_eos or adapter:
            raise UsageError("a diffusion language model takes --prompt, --max-new-tokens and --set only")
        from patcomp_models.bundles import generate_text

        settings = settings_in(setting)
        if taken := settings.keys() & {"bundle", "prompt", "max_new_tokens"}:
            raise UsageError(f"--set: {', '.join(sorted(taken))} is no setting of a loop")
        written = generate_text(bundle, prompt, max_new_tokens, **settings)
        tell(written.text)
        say(f"{len(written.tokens)} tokens in {written.calls} calls of the model")
        return
    if kind not in ("llm", "vlm", "hearing"):
        raise UsageError(f"{bundle} is a bundle of the kind {kind}, and not of a language model")
    if setting:
        raise UsageError("--set is for diffusion language models")
    if draft is not None and own_draft:
        raise UsageError("--draft and --own-draft exclude each other")
    from patcomp_models.language import Bundle

    found = Bundle(bundle)
    made = found.generation(
        prompt, max_new_tokens, image, audio=_recordings(audio, metadata), video=_films(video, fps),
        draft=True if own_draft else draft, ignore_eos=ignore_eos, adapter=adapter,
    )  # fmt: skip
    tell(found.decoded(made.tokens))
    if own_draft or draft is not None:
        say(f"{len(made.tokens)} tokens in {made.calls} calls of the model")


def _recordings(files: list[Path] | None, metadata: Mapping[str, Any]) -> list[Any] | None:
    """The samples of recordings.

    Raises:
        UsageError: the bundle takes none, or has no processor that says at which rate.
    """
    from patcomp_models.bundles.speech.recordings import samples_of

    if not files:
        return None
    rate = metadata.get("audio", {}).get("sample_rate")
    if rate is None:
        raise UsageError("--audio: the bundle takes no recordings, or has no processor for them")
    return [samples_of(file, rate) for file in files]


def _films(folders: list[Path] | None, fps: float | None) -> list[Any] | None:
    """The frames of videos, in the order of their names.

    Raises:
        UsageError: there is no folder, or it is empty; or there are frames of a second and no video.
    """
    if not folders:
        if fps is not None:
            raise UsageError("--fps is of the frames of --video; give a folder of frames")
        return None
    films = [sorted(each for each in folder.glob("*") if each.is_file()) for folder in folders]
    if empty := [str(folder) for folder, film in zip(folders, films, strict=True) if not film]:
        raise UsageError(f"--video: there are no frames in {empty[0]!r}; give a folder with an image for each frame")
    return [{"frames": film, **({} if fps is None else {"fps": fps})} for film in films]
