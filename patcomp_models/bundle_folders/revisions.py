"""Two revisions of Apple's Swift package (https://github.com/apple/coreai-models), and what each reads of
`metadata.json`: a row a field.

A row says in which file, and in which revision of the file, the field was read. What has no row is the same in both
revisions and is checked elsewhere, or is ignored: Apple's package skips keys that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from patcomp.errors import Problem
from patcomp_models.bundle_folders.contract import problem
from patcomp_models.errors import BundleError

OLD, NEW = "86b363d", "34ab73d"
REVISIONS = (OLD, NEW)
"""By which a check names the contract."""


def check_revision(revision: object) -> None:
    """Check that a contract is known.

    Raises:
        BundleError: it is of another revision.
    """
    if revision not in REVISIONS:
        raise BundleError(
            f"the contract of revision {revision!r} of Apple's Swift package is not known; there are those of "
            f"{' and '.join(REVISIONS)}"
        )


GROWING, SLIDING, FIXED = "kv_cache", "sliding_cache", "fixed"
"""What a state of a language model is. The engines go back in the first two by counting."""

LATER_KINDS: Mapping[str, Sequence[str]] = {OLD: (), NEW: ("video-diffusion", "video_segmenter")}
"""The kinds of bundles that a revision has beside those of the earlier ones (BundleKind.swift, 53dc88c)."""


@dataclass(frozen=True)
class Takes:
    """What a field may be: in words, and as a test."""

    words: str
    fits: Callable[[Any], bool]


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def one_of(*words: str) -> Takes:
    """One of some words."""
    return Takes(f"one of {', '.join(words)}", words.__contains__)


OBJECT = Takes("an object", lambda value: isinstance(value, dict))
TEXT = Takes("a text", lambda value: isinstance(value, str))
FLAG = Takes("true or false", lambda value: isinstance(value, bool))
INTEGER = Takes("an integer", _is_integer)
COUNT = Takes("a positive integer", lambda value: _is_integer(value) and value > 0)
NUMBER = Takes("a number", _is_number)
POSITIVE = Takes("a positive number", lambda value: _is_number(value) and value > 0)


@dataclass(frozen=True)
class Field:
    """A field of `metadata.json`.

    Attributes:
        path: its keys, joined by dots; `*` is any key.
        kinds: of the bundles that have it.
        revisions: that read it.
        takes: what it may be.
        source: the file where it was read, and the file's revision.
        needed: whether the package refuses a bundle whose object lacks it.
    """

    path: str
    kinds: Sequence[str]
    revisions: Sequence[str]
    takes: Takes
    source: str
    needed: bool = False


_LANGUAGE, _DIFFUSION, _VIDEO = ("llm", "vlm"), ("diffusion",), ("video_segmenter",)
_NEW = (NEW,)
_CONFIG, _OVERRIDES = "LanguageConfig.swift, dd0b4ab and 13b60ae", "LanguageConfig.swift, 13b60ae"
_STATES, _IMAGES = "StateHandlerFactory.swift, 34ab73d", "DiffusionConfig.swift, 8ea2538"
_OLDER = "PipelineDescriptor.swift, 0c655cd, without the types that have no pipeline in 86b363d"
_ROPE = "language.overrides.rope"
_SLOTS = "VideoSegmentationBundle.swift, 251056c"
TRACKING: Mapping[str, Takes] = {
    **dict.fromkeys(("score_threshold_detection", "det_nms_thresh", "new_det_thresh", "assoc_iou_thresh",
                     "trk_assoc_iou_thresh", "high_conf_thresh", "high_iou_thresh",
                     "suppress_overlapping_based_on_recent_occlusion_threshold"), NUMBER),
    **dict.fromkeys(("recondition_every_nth_frame", "hotstart_delay", "hotstart_unmatch_thresh", "hotstart_dup_thresh",
                     "init_trk_keep_alive", "max_trk_keep_alive", "min_trk_keep_alive", "max_num_objects",
                     "fill_hole_area", "num_maskmem", "max_cond_frame_num", "max_object_pointers_in_encoder"), INTEGER),
    **dict.fromkeys(("recondition_on_trk_masks", "suppress_unmatched_only_within_hotstart",
                     "decrease_trk_keep_alive_for_empty_masklets"), FLAG),
}  # fmt: skip
"""What a host of videos may be told of a model: the names are those of its configuration in transformers."""

FIELDS = (
    Field("language", _LANGUAGE, REVISIONS, OBJECT, "LanguageModelBundle.swift, 79de95b", needed=True),
    Field("language.tokenizer", _LANGUAGE, REVISIONS, TEXT, _CONFIG, needed=True),
    Field("language.vocab_size", _LANGUAGE, REVISIONS, COUNT, _CONFIG, needed=True),
    Field("language.max_context_length", _LANGUAGE, REVISIONS, COUNT, _CONFIG, needed=True),
    Field("language.embedded_tokenizer", _LANGUAGE, REVISIONS, FLAG, _CONFIG),
    Field("language.states", _LANGUAGE, _NEW, OBJECT, _OVERRIDES),
    Field("language.states.*", _LANGUAGE, _NEW, one_of(GROWING, SLIDING, FIXED), _STATES),
    Field("language.prefill_chunk_size", _LANGUAGE, _NEW, INTEGER, _OVERRIDES),
    Field("language.prefill_chunk_threshold", _LANGUAGE, _NEW, INTEGER, _OVERRIDES),
    Field("language.overrides", _LANGUAGE, _NEW, OBJECT, _OVERRIDES),
    Field("language.overrides.sliding_window", _LANGUAGE, _NEW, INTEGER, _OVERRIDES),
    Field("language.overrides.final_logit_softcapping", _LANGUAGE, _NEW, POSITIVE, _OVERRIDES),
    Field(_ROPE, _LANGUAGE, _NEW, OBJECT, _OVERRIDES),
    Field(f"{_ROPE}.sliding_head_dim", _LANGUAGE, _NEW, INTEGER, _OVERRIDES, needed=True),
    Field(f"{_ROPE}.global_head_dim", _LANGUAGE, _NEW, INTEGER, _OVERRIDES, needed=True),
    Field(f"{_ROPE}.sliding_rope_theta", _LANGUAGE, _NEW, NUMBER, _OVERRIDES, needed=True),
    Field(f"{_ROPE}.global_rope_theta", _LANGUAGE, _NEW, NUMBER, _OVERRIDES, needed=True),
    Field(f"{_ROPE}.partial_rotary_factor", _LANGUAGE, _NEW, NUMBER, _OVERRIDES, needed=True),
    Field("diffusion.type", _DIFFUSION, (OLD,), one_of("stable-diffusion", "stable-diffusion-3", "flux2"), _OLDER),
    # another word is decoded as no type, and no pipeline is chosen for it
    Field("diffusion.type", _DIFFUSION, _NEW, one_of("flux2", "sana-sprint"), _IMAGES),
    Field("diffusion.max_timesteps", _DIFFUSION, _NEW, NUMBER, _IMAGES),
    Field("diffusion.intermediate_timesteps", _DIFFUSION, _NEW, NUMBER, _IMAGES),
    Field("diffusion.prompt_prefix", _DIFFUSION, _NEW, TEXT, _IMAGES),
    Field("diffusion.text_input_length", _DIFFUSION, _NEW, INTEGER, _IMAGES),
    Field("diffusion.text_sequence_length", _DIFFUSION, _NEW, INTEGER, _IMAGES),
    Field("runtime", _VIDEO, _NEW, OBJECT, _SLOTS, needed=True),
    *(
        Field(f"runtime.{name}", _VIDEO, _NEW, COUNT, _SLOTS, needed=True)
        for name in ("image_size", "spatial_slots", "ptr_slots", "max_text_seq_len")
    ),
    Field("tracking", _VIDEO, _NEW, OBJECT, _SLOTS),
    *(Field(f"tracking.{name}", _VIDEO, _NEW, takes, _SLOTS) for name, takes in TRACKING.items()),
)


def field_problems(metadata: Mapping[str, Any], revision: str) -> list[Problem]:
    """The fields of `metadata.json` that a revision would refuse.

    Args:
        metadata: its content.
        revision: of Apple's Swift package, one of `REVISIONS`.
    """
    found = []
    for field in FIELDS:
        if metadata.get("kind") not in field.kinds or revision not in field.revisions:
            continue
        for path, value in _values(metadata, field.path.split(".")):
            if value is None:  # Swift decodes null as a key that is not there
                found += [problem(f"{path} is missing")] if field.needed else []
            elif not field.takes.fits(value):
                found.append(problem(f"{path} is {value!r}, and must be {field.takes.words}"))
    return found


def _values(block: Mapping[str, Any], keys: Sequence[str], before: str = "") -> Iterator[tuple[str, Any]]:
    """The values at a path, and the path of each; None for a key that its object lacks. Nothing where the object itself
    is not there."""
    first, *others = keys
    for key in block if first == "*" else (first,):
        value, path = block.get(key), f"{before}{key}"
        if not others:
            yield path, value
        elif isinstance(value, Mapping):
            yield from _values(value, others, f"{path}.")
