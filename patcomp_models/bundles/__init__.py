"""Bundles: what apps load, from the folder of a model or of a pipeline of models.

convert_bundle("stable-diffusion-v1-5", out="sd", compress="4bit")
check_bundle("sd")  # what Apple's Swift package would refuse
generate_image("sd", "a cat", seed=1)  # on this machine's Core AI runtime
"""

import patcomp.torchvision  # noqa: F401 (the first, because transformers imports torchvision)
from patcomp_models.bundles.check import check_bundle
from patcomp_models.bundles.diffusion.generation import generate_image
from patcomp_models.bundles.folder_to_bundle import convert_bundle
from patcomp_models.bundles.segmenter.given import convert_segmenter
from patcomp_models.bundles.speech.recogniser import Transcription
from patcomp_models.bundles.speech.transcribing import transcribe
from patcomp_models.bundles.text_diffusion.generation import DiffusedText, generate_text
from patcomp_models.errors import BundleError

__all__ = [
    "BundleError",
    "DiffusedText",
    "Transcription",
    "check_bundle",
    "convert_bundle",
    "convert_segmenter",
    "generate_image",
    "generate_text",
    "transcribe",
]
