"""Language models: from a checkpoint folder to a bundle that Apple's Swift package loads.

    bundle = patcomp_models.language.convert_language_model("Qwen3-0.6B", out="bundles/qwen3")
    print(bundle.text("The capital of France is", max_new_tokens=8))

It needs transformers: `pip install "patcomp[models]"`. `docs/language-models.md` is the guide.
"""

import patcomp.torchvision  # noqa: F401 (the first, because transformers imports torchvision)
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.architectures import ARCHITECTURES
from patcomp_models.language.bundle import Bundle
from patcomp_models.language.bundle_check import check_bundle
from patcomp_models.language.checkpoint_to_bundle import convert_language_model
from patcomp_models.language.compressing import compress_bundle, measure_compression, sweep_compression
from patcomp_models.language.open_lengths import open_lengths
from patcomp_models.language.vision.checkpoint_to_bundle import convert_vision_language_model
from patcomp_models.language.vision.towers import TOWERS

__all__ = [
    "ARCHITECTURES",
    "TOWERS",
    "Bundle",
    "LanguageModelError",
    "check_bundle",
    "compress_bundle",
    "convert_language_model",
    "convert_vision_language_model",
    "measure_compression",
    "open_lengths",
    "sweep_compression",
]
