"""The subcommands for other people's models, and how commands of patcomp read their folders and bundles.

Each method imports what it needs when it is called, so that `patcomp` starts without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from patcomp.commands.common import require_transformers
from patcomp.commands.exporting import Preparation
from patcomp.commands.models import ModelOptions
from patcomp.commands.packages import Reader
from patcomp.commands.recipes import with_recipe
from patcomp.commands.subjects import Subject
from patcomp.conversion.source import ModelSource

if TYPE_CHECKING:
    from patcomp import AIProgram

_MODELS = "Language, speech and pictures"


class ModelCommands(Reader):
    """Folders of models, names of models, and bundles."""

    reads = frozenset({Subject.FOLDER, Subject.NAME, Subject.BUNDLE})

    def add_to(self, app: typer.Typer) -> None:
        from patcomp_models.commands import images, language, speech

        app.command("convert-lm", rich_help_panel=_MODELS)(with_recipe(language.convert_lm))
        app.command("convert-vlm", rich_help_panel=_MODELS)(with_recipe(language.convert_vlm))
        app.command(rich_help_panel=_MODELS)(language.generate)
        app.command(rich_help_panel=_MODELS)(speech.transcribe)
        app.command("generate-image", rich_help_panel=_MODELS)(images.generate_image)

    def check(self, model: str, found: Subject, options: ModelOptions) -> None:
        from patcomp_models.commands.models import check_model

        check_model(model, found, options)

    def sources(self, model: str, found: Subject, options: ModelOptions) -> list[ModelSource]:
        from patcomp_models.commands.models import sources_of

        return sources_of(model, options)

    def preprocessing(self, options: ModelOptions) -> Preparation:
        from patcomp_models.commands.preprocessing import preparation_of

        return preparation_of(options)

    def inputs_of_texts(
        self, model: str, texts: Sequence[tuple[str, ...]], program: AIProgram, entry: str
    ) -> list[dict[str, Any]]:
        from patcomp_models.tasks.texts import inputs_of_texts

        return inputs_of_texts(model, texts, program, entry)

    def convert_to_bundle(self, context: typer.Context, model: str, output: Path | None, **options: Any) -> None:
        from patcomp_models.commands.bundles import convert_to_bundle

        convert_to_bundle(context, model, output, **options)

    def bundle_of(self, model: str, out: Path, **options: Any) -> Path:
        require_transformers("a bundle")
        from patcomp_models.bundles import convert_bundle

        return convert_bundle(model, out=out, **options)

    def inspect_bundle(self, bundle: Path, *, as_json: bool) -> None:
        from patcomp_models.commands.bundles import inspect_bundle

        inspect_bundle(bundle, as_json=as_json)

    def compress_bundle(self, bundle: Path, output: Path | None, requests: Sequence[Any], **options: Any) -> None:
        from patcomp_models.commands.compress import compress_or_measure

        compress_or_measure(bundle, output, requests, **options)

    def generate(self, bundle: Path, prompt: str) -> None:
        from patcomp_models.commands.language import generate

        generate(bundle, prompt)

    def problems_of(self, bundle: Path) -> Sequence[object]:
        require_transformers("the kinds of bundles")
        from patcomp_models.bundles import check_bundle

        return check_bundle(bundle)

    def assets_of(self, bundle: Path) -> dict[str, Path]:
        from patcomp_models.commands.bundles import bundle_assets

        return bundle_assets(bundle)


COMMANDS = ModelCommands()
