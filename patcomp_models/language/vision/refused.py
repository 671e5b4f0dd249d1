"""Models of images and text that become no bundle of this form, and why."""

from __future__ import annotations

_ENCODER = "an encoder takes the image, and its decoder is no language model alone"
_CROSS = "layers of the language model look at the image by cross attention, and a bundle gives it embeddings only"
_CODES = "an image becomes tokens of a vocabulary, and a bundle gives features"
_PREFIX = "it cannot be called without an image, and each call of a bundle after the first has none"
_VIEWS = "its features come from several views of an image, and a bundle has one view"
_PATCHES = "its tower takes patches of an image as small images, which is not built yet"
_TEXT = "it has no vision tower"

WITHOUT_TOWER: dict[str, str] = {
    "florence2": "its text is read by an encoder; patcomp convert FOLDER -o NAME.aimodel makes encode and decode",
    **dict.fromkeys(
        ("pix2struct", "pp_formulanet", "t5gemma2", "udop", "vision-encoder-decoder"), _ENCODER
    ),
    **dict.fromkeys(("mllama", "idefics"), _CROSS),
    "evolla": "it takes proteins in the place of images",
    **dict.fromkeys(("chameleon", "emu3"), _CODES),
    **dict.fromkeys(("blip", "blip-2", "git", "kosmos-2", "kosmos-2.5"), _PREFIX),
    **dict.fromkeys(("instructblip", "instructblipvideo"), "its tower reads the question beside the image"),
    "fuyu": "patches of an image go into the language model without a tower, each line with a token of its own",
    "diffusion_gemma": "it writes by diffusion; patcomp convert FOLDER -o NAME makes a bundle for texts without images",
    "pi0": "it makes movements of a robot by diffusion",
    "mistral4": _TEXT,
    **dict.fromkeys(("step3p7", "molmo2"), _VIEWS),
    "deepseek_vl_hybrid": "it takes each image in two sizes",
    "unlimited_ocr": "its cache keeps the prompt and a window behind it; a window of a bundle keeps the last tokens",
    "minicpmv4_7": "its positions depend on the marks of slices around an image, which a bundle does not see",
    "idefics2": "its tower takes images of any size with a mask of their padding, and has one function for a size",
    "glm5_next": "its language model chooses tokens by an index of pools of keys, which no bundle holds",
    "qwen4_exp": "its language model keeps positions for an index, and a bundle holds one key of it for each token",
    **dict.fromkeys(("inkling2", "inkling2_loop", "inkling_mm_model"), _PATCHES),
    "apertus1p5": _CODES,
    "hy_v4_vl": "each line of an image ends with a token of its own, and no small model of it is tested yet",
}  # fmt: skip
"""By `model_type`. A type that has a tower is converted, whatever stands here."""
