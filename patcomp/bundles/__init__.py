"""Bundles: what apps load, from the folder of a model or of a pipeline of models.

convert_bundle("stable-diffusion-v1-5", out="sd", compress="4bit")
check_bundle("sd")  # what Apple's Swift package would refuse
"""

from patcomp.bundle_folders.errors import BundleError
from patcomp.bundles.check import check_bundle
from patcomp.bundles.folder_to_bundle import convert_bundle

__all__ = ["BundleError", "check_bundle", "convert_bundle"]
