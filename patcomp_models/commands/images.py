"""`patcomp generate-image`: an image, video or sound of a text, by the bundle of a pipeline of diffusers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from patcomp.commands.common import UsageError, require_transformers, say
from patcomp.commands.progress import working
from patcomp.commands.subjects import Subject, subject_of


def generate_image(
    bundle: Annotated[Path, typer.Argument(help="The folder of a bundle.")],
    prompt: Annotated[str, typer.Option(help="The text of the image.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The file: .png, of a video .gif or .webp, of a sound .wav.")
    ],
    negative_prompt: Annotated[str | None, typer.Option(help="What the image is to be unlike.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of the scheduler; by default the bundle's.")] = None,
    guidance: Annotated[
        float | None, typer.Option(help="How much the text counts, 1 is not at all; by default the bundle's.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the noise.")] = 0,
    image: Annotated[
        Path | None, typer.Option(help="An image for a ControlNet, or that FLUX.2 follows; read by Pillow.")
    ] = None,
    tiled: Annotated[bool, typer.Option("--tiled", help="Decode in tiles, by the decoder for half the size.")] = False,
) -> None:
    """Make an image, video or sound of a text on this machine's Core AI runtime; for checks, not for speed.

    $ patcomp generate-image bundles/sd --prompt 'a cat' --seed 1 -o cat.png
    """
    subject_of(str(bundle), "generate-image", (Subject.BUNDLE,))
    from patcomp_models.bundles.diffusion.result_files import suffixes_of, write_result

    if output.suffix not in (suffixes := suffixes_of(bundle)):
        raise UsageError(f"--output is a file {' or '.join(suffixes)}, got {str(output)!r}")
    if not output.parent.is_dir():
        raise UsageError(f"--output: there is no folder {str(output.parent)!r}")
    require_transformers("an image")
    import numpy as np
    from PIL import Image

    from patcomp_models.bundles import generate_image as generated

    if image is not None and not image.is_file():
        raise UsageError(f"--image: there is no file {str(image)!r}")
    given = None if image is None else np.asarray(Image.open(image).convert("RGB"), np.float32) / 255
    with working(f"running {bundle}", True):
        made = generated(
            bundle,
            prompt,
            negative_prompt=negative_prompt,
            steps=steps,
            guidance=guidance,
            seed=seed,
            tiled=tiled,
            image=given,
        )
    write_result(made, bundle, output)
    say(f"image: {output}")
