"""The options of conversions of language models, in Python, on the command line, of bundles and in the documentation.

Types that commands need not import are texts here, because the commands start without PyTorch.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from patcomp.options import ALLOW_MISSING, ALLOW_UNEXPECTED, CATALOG, COMPRESS, WRITER, Option

if TYPE_CHECKING:
    from torch import nn

    from patcomp.emit.asset import Writer

Progress = Callable[[str], AbstractContextManager[Any]]
"""A context manager around a step, by what the step does."""


@dataclass(frozen=True, eq=False)
class BundleOptions:
    """What the conversions of language models and of those with images have in common."""

    folder_or_model: Annotated[
        "str | Path | nn.Module",
        Option(
            "The folder of a checkpoint of transformers, a GGUF file, or an id of the hub.",
            'A folder has `config.json`, `*.safetensors` and a tokenizer; an id, `"owner/name"`, is downloaded. In '
            "Python also a model of transformers, which is not changed.",
            flag=str,
            names=("folder",),
        ),
    ]
    _: KW_ONLY
    out: Annotated[
        str | Path,
        Option("The folder of the bundle, which must not exist.", flag=Path, names=("--output", "-o")),
    ]
    max_context: Annotated[
        int | None,
        Option(
            "The most tokens; by default the model's own, and at most 4096 for neural_engine.",
            "Those of the prompt are included.",
        ),
    ] = None
    dtype: Annotated[
        Literal["float16", "bfloat16", "float32"],
        Option(
            "The type of the weights and the cache.",
            "The Swift package takes float16 logits, which both half types give; float32 is for checks.",
        ),
    ] = "float16"
    name: Annotated[str | None, Option("The name of the bundle; by default that of the folder.", flag=NoneType)] = None
    tokenizer: Annotated[
        Any,
        Option(
            "Whether the bundle gets the folder's tokenizer; without one it takes token ids only.",
            "In Python a tokenizer of transformers, `False` for none, or None for the folder's; there is none for a "
            "model that is given.",
            flag=bool,
        ),
    ] = None
    allow_missing: Annotated[str | Sequence[str], ALLOW_MISSING] = ()
    allow_unexpected: Annotated[str | Sequence[str], ALLOW_UNEXPECTED] = ()
    compress: Annotated[str | Path | Mapping[str, Any] | None, COMPRESS] = None
    progress: Annotated[
        "Progress | None",
        Option(
            "Called with what is done next, for a context manager around it: `rich.console.Console().status`.",
            "If its value is a function, it is called with the bytes that are written of the asset, and all of them.",
            flag=NoneType,
        ),
    ] = None
    writer: Annotated["Writer | None", WRITER] = None


@dataclass(frozen=True, eq=False)
class LanguageOptions(BundleOptions):
    """What a user asks of `convert_language_model`, `patcomp convert-lm` and bundles of the kind `llm`."""

    target: Annotated[
        Literal["gpu", "neural_engine"],
        Option(
            "The form: one function for macOS, or many for iOS.",
            '`"neural_engine"` is functions of fixed sizes over a table of embeddings, for llama, qwen2, qwen3, '
            "mistral, gemma3n_text and gemma4_text; the function for macOS has dynamic sizes.",
        ),
    ] = "gpu"
    _: KW_ONLY
    quantize_embeddings: Annotated[
        bool, Option("Whether the Neural Engine's table of embeddings is of int8.", "The table has one scale.")
    ] = True
    calibrate: Annotated[
        str | Path | Sequence[int] | None,
        Option(
            "A text like what the model will read, by which its weights or its cache are rounded.",
            "It goes with `compress` or `cache`, and is the path of a file, or in Python token ids. Weights are "
            "rounded so that outputs of products stay (GPTQ), which halves the rise of the loss or better. At most 16 "
            "parts of 512 tokens are read, spread over the text. A folder of texts is read one text behind the other.",
            flag=Path,
        ),
    ] = None
    prefill: Annotated[
        int | None,
        Option("Add a function for so many tokens; main then takes one token.", "A recurrence has no loop in `main`."),
    ] = None
    verify: Annotated[
        int | None,
        Option(
            "Add a function for one token and so many drafted ones behind it.",
            "It gives all their logits. As an option of a bundle it is called `drafted`.",
        ),
    ] = None
    hidden: Annotated[
        bool,
        Option(
            "Give each function the hidden state before the head as an output.",
            "It is `hidden`, 1 x q x width, which the head takes.",
        ),
    ] = False
    draft: Annotated[
        "str | Path | nn.Module | None",
        Option(
            "The folder or id of a smaller model, or mtp: the function draft of the same asset.",
            "In Python also a model. The function has weights and states of its own (`draftKeyCache`, ...); "
            '`Bundle.generate(draft=True)` drafts with it. `"mtp"` is the head of the checkpoint that foresees tokens '
            "(multi-token prediction), which takes the model's `hidden`.",
            flag=str,
        ),
    ] = None
    adapter: Annotated[
        str | Path | Sequence[str | Path],
        Option(
            "The folder of an adapter of peft (LoRA) that is merged into the weights; may be given several times.",
            "In Python one or a list. The sum is made in float32. `0.5=FOLDER` adds half of it. The folder of an "
            "adapter in place of the model's stands for the model that it names, with the adapter.",
            flag=list[str],
        ),
    ] = ()
    adapters: Annotated[
        str | Mapping[str, str | Path] | Sequence[str],
        Option(
            "NAME=FOLDER: an adapter of peft (LoRA) as a function main_NAME beside main; may be given several times.",
            "In Python a dict. The functions share the weights of the model, and each has its adapter's own; "
            '`Bundle.generate(adapter="NAME")` takes its function. Apple\'s engines call `main`, which has none.',
            flag=list[str],
        ),
    ] = ()
    batch: Annotated[
        int,
        Option(
            "How many texts a call takes; shorter ones are padded on the left.",
            "Tokens are `batch` x q, caches have a row for each text, and the further input `first_tokens` says where "
            "each text begins; `Bundle.generate_batch` takes several prompts. Apple's engines take one.",
        ),
    ] = 1
    window_caches: Annotated[
        bool,
        Option(
            "Layers with a sliding window keep the tokens of the window only.",
            "The window is smaller than `max_context`, and the states are of fixed size. To go back to an earlier "
            "token, Apple's engines then read the whole prompt again.",
        ),
    ] = False
    cache: Annotated[
        Literal["int8"] | None,
        Option(
            "int8: the caches of keys and values hold 8 bits, which halves them; with --calibrate.",
            "A layer's keys have one scale and so have its values, measured on the text. A note in `metadata.json` "
            "says what it does to the loss on a part of the text; a rise of more than half a nat is refused.",
        ),
    ] = None
    absorb_latents: Annotated[
        bool,
        Option(
            "Latent attention attends to the latents in the cache.",
            "Such layers (DeepSeek-V2 to V3.2, GLM-4.7 Flash, GLM-5, Kimi Linear, Youtu, MiniCPM3) make no keys and "
            "values of heads from the latents; decoding behind many tokens is faster, and long prompts are slower. The "
            "rule is `patterns_catalog.optional.latent_attention`.",
        ),
    ] = False
    embeddings: Annotated[
        Literal["inside", "outside"],
        Option(
            "outside: per-layer embeddings (Gemma 3n, 4) are a file of the bundle and an input.",
            "The file is `per_layer_embeddings.safetensors`, and the input of each function `per_layer_embeddings`. "
            "The table stays in floats, and Apple's engines do not give such an input. The Neural Engine's form always "
            "has such a table, of int8, in its own names.",
        ),
    ] = "inside"
    float32: Annotated[
        str | Sequence[str],
        Option(
            "A module, or a pattern as *.self_attn, that computes in float32; may be given several times.",
            "In Python one or a list. The others compute in half precision, and so do the interface and the "
            "caches; a folder is read in float32.",
            flag=list[str],
        ),
    ] = ()
    check: Annotated[
        bool | str | Sequence[int],
        Option(
            "A prompt on which the bundle is compared with the model; by default a few tokens.",
            "It is a text that the tokenizer splits, or in Python token ids; `False` (`--no-check`) does not compare. "
            "The evaluator runs the program, and the Core AI runtime where it is installed.",
            flag=str,
        ),
    ] = True
    catalog: Annotated[Sequence[Any], CATALOG] = ()
    expand: Annotated[
        bool,
        Option(
            "Make floats of weights whose bits cannot be kept, such as IQ2_XXS of GGUF.",
            "A note in `metadata.json` says which.",
        ),
    ] = False
    trust_remote_code: Annotated[
        bool,
        Option(
            "Run Python code of the folder.",
            names=("--trust-remote-code/--no-trust-remote-code",),
        ),
    ] = False


@dataclass(frozen=True, eq=False)
class VisionOptions(BundleOptions):
    """What a user asks of `convert_vision_language_model`, `patcomp convert-vlm` and bundles of the kind `vlm`."""

    folder_or_model: Annotated[
        "str | Path | nn.Module",
        Option(
            "The folder of a checkpoint of transformers, or an id of the hub.",
            "In Python also a model of transformers, which is not changed.",
            flag=str,
            names=("folder",),
        ),
    ]
    _: KW_ONLY
    max_context: Annotated[
        int | None,
        Option("The most tokens; by default the model's own.", "Those of the image and the prompt are included."),
    ] = None
    image_size: Annotated[
        int | None,
        Option(
            "The side of the square image, in pixels; by default the image processor's.",
            "Without an image processor it is the size that the architecture is usual with.",
        ),
    ] = None
    image_shapes: Annotated[
        str | Sequence[str | tuple[int, int]],
        Option(
            "Height x width of images beside the square, as 448x672; may be given several times.",
            "In Python one or a list, also of (height, width). The vision tower has a function for each, "
            "`main_448x672`, and `Bundle.generate` takes the one that fits a picture; Apple's engine takes the square.",
            flag=list[str],
        ),
    ] = ()
    calibrate: Annotated[
        str | Path | Sequence[int] | None,
        Option(
            "A folder of pictures with their texts, or a text, by which weights are rounded; it goes with `compress`.",
            "Each picture has a text of the same name, with a place for it (`cat.png`, `cat.txt`). In Python also "
            "token ids. Weights are rounded so that outputs of products stay (GPTQ).",
            flag=Path,
        ),
    ] = None
    video_shapes: Annotated[
        str | Sequence[str | tuple[int, int]],
        Option(
            "Height x width of frames of videos, as 448x672; may be given several times.",
            "The vision tower has a function for a moment of a video of each, `video_448x672`, which `Bundle.generate` "
            "calls for each moment; Apple's engine takes no videos.",
            flag=list[str],
        ),
    ] = ()
    image_processor: Annotated[
        Any,
        Option(
            "An image processor of transformers, or its settings as a dict; by default those of the folder.",
            flag=NoneType,
        ),
    ] = None
    draft: Annotated[
        Literal["mtp"] | None,
        Option(
            "mtp: the checkpoint's head that foresees tokens as a function.",
            "The function `draft` (multi-token prediction) takes the output `hidden` that `main` then has.",
        ),
    ] = None
    check: Annotated[
        bool,
        Option(
            "Whether the programs are compared with the model.",
            "It takes an image and a few tokens, on the evaluator, and on the Core AI runtime where it is installed.",
            flag=NoneType,
        ),
    ] = True
