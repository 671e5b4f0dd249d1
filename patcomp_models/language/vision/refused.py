"""Models of images and text that become no bundle of this form, and why."""

from __future__ import annotations

PAIR = "its decoder looks at what an encoder reads; patcomp convert FOLDER -o NAME.aimodel makes encode and decode"
"""Of types that a folder has a task for."""
_CROSS = "layers of the language model look at the image by cross attention, and a bundle gives it embeddings only"
_CODES = "an image becomes tokens of a vocabulary, and a bundle gives features"
_WORDS = "the tokens of its image are also tokens of text, and a bundle tells an image by a token of its own"
_VIEWS = "its features come from several views of an image, and a bundle has one view"
_PATCHES = "its tower takes patches of an image as small images, which is not built yet"
_TEXT = "it has no vision tower"

WITHOUT_TOWER: dict[str, str] = {
    **dict.fromkeys(
        ("florence2", "pix2struct", "pp_formulanet", "t5gemma2", "vision-encoder-decoder", "blip"), PAIR
    ),
    "udop": "its encoder leaves out parts of an image, whose number a run knows",
    **dict.fromkeys(("mllama", "idefics"), _CROSS),
    "evolla": "it takes proteins in the place of images",
    **dict.fromkeys(("kosmos-2", "kosmos-2.5"), _WORDS),
    "git": "its image stands before the text without tokens, and a bundle puts features in the place of tokens",
    **dict.fromkeys(("instructblip", "instructblipvideo"), "its tower reads the question beside the image"),
    "diffusion_gemma": "it writes by diffusion; patcomp convert FOLDER -o NAME makes a bundle for texts without images",
    "pi0": "it makes movements of a robot by diffusion",
    "mistral4": _TEXT,
    **dict.fromkeys(("step3p7", "molmo2"), _VIEWS),
    "deepseek_vl_hybrid": "it takes each image in two sizes",
    "unlimited_ocr": "its cache keeps the prompt and a window behind it; a window of a bundle keeps the last tokens",
    "minicpmv4_7": "its positions depend on the marks of slices around an image, which a bundle does not see",
    "glm5_next": "its language model chooses tokens by an index of pools of keys, which no bundle holds",
    "qwen4_exp": "its index keeps the positions of all tokens, and a bundle with images does not hold them",
    **dict.fromkeys(("inkling2", "inkling2_loop", "inkling_mm_model"), _PATCHES),
    "apertus1p5": _CODES,
    "hy_v4_vl": "each line of an image ends with a token of its own, and no small model of it is tested yet",
}  # fmt: skip
"""By `model_type`. A type that has a tower is converted, whatever stands here."""
