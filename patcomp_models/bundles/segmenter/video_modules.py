"""The tensor functions of SAM 3 for videos. What its session keeps between frames stays with the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.models.sam3.modeling_sam3 import Sam3VisionEncoderOutput
from transformers.models.sam3_tracker_video.modeling_sam3_tracker_video import get_1d_sine_pe

from patcomp_models.bundles.segmenter.tracker import attend_by, masks_of_frame, pointer_of_mask

MEMORY_DTYPE = torch.float16
"""The type of what Swift keeps between frames: memories of masks, and pointers to objects."""
_HIDDEN = -40000.0
"""What is added to the scores of memories that are none. It is a number of float16, and no infinity."""
_DECIDED = 1e4
"""A logit whose sigmoid is exactly 1, and its negative's 0."""
_OF_MEMORIES: ContextVar[Tensor | None] = ContextVar("mask_of_memories", default=None)
_ATTENTION = "patcomp_with_mask_of_memories"


def _attention(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **options: Any) -> Any:
    """Attention to memories with the mask of now: the tracker's own layers have no argument for one."""
    mask = _OF_MEMORIES.get() if getattr(module, "rope_k_repeat", False) else attention_mask
    return sdpa_attention_forward(module, query, key, value, mask, **options)


AttentionInterface.register(_ATTENTION, _attention)


@contextmanager
def _with_mask(mask: Tensor) -> Iterator[None]:
    """While the tracker attends to memories, this mask is added to the scores."""
    before = _OF_MEMORIES.set(mask)
    try:
        yield
    finally:
        _OF_MEMORIES.reset(before)


class _OfVideo(nn.Module):
    """A function of SAM 3 for videos.

    Args:
        model: `Sam3VideoModel`.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.model = model

    def maps(self, *features: Tensor) -> list[Tensor]:
        """Features of the first levels, or of the last one alone, each (height * width, 1, channels), as images."""
        sizes = self.model.tracker_model.backbone_feature_sizes
        sizes = sizes[-1:] if len(features) == 1 else sizes[: len(features)]
        return [each.permute(1, 2, 0).unflatten(2, tuple(size)) for each, size in zip(features, sizes, strict=True)]


class FrameEncode(_OfVideo):
    """Features of the patches of a frame, (1, patches, width), for the detector and the tracker."""

    def forward(self, pixel_values: Tensor) -> Tensor:
        found: Tensor = self.model.detector_model.vision_encoder.backbone(pixel_values).last_hidden_state
        return found


class WordsEncode(_OfVideo):
    """Features of a text, (1, length, width); the mask (1, length) is 0 for padding."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        found: Tensor = self.model.detector_model.get_text_features(
            input_ids=input_ids, attention_mask=attention_mask.to(torch.int64), return_dict=True
        ).pooler_output
        return found


class DetectInFrame(_OfVideo):
    """Everything that a text names in a frame."""

    def forward(self, last_hidden_state: Tensor, text_features: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        detector = self.model.detector_model
        side = self.model.tracker_model.prompt_encoder.image_embedding_size
        states, positions = detector.vision_encoder.neck(last_hidden_state.mT.unflatten(2, tuple(side)))
        found = detector(
            vision_embeds=Sam3VisionEncoderOutput(fpn_hidden_states=states, fpn_position_encoding=positions),
            text_embeds=BaseModelOutputWithPooling(pooler_output=text_features),
            attention_mask=attention_mask.to(torch.int64),
        )
        return found.pred_masks, found.pred_boxes, found.pred_logits, found.presence_logits, found.semantic_seg


class TrackerEncode(_OfVideo):
    """The tracker's features of a frame on three levels, finest first, and their positions: (height * width, 1, .)."""

    def forward(self, last_hidden_state: Tensor) -> tuple[Tensor, ...]:
        features, positions = self.model.get_vision_features_for_tracker(
            Sam3VisionEncoderOutput(last_hidden_state=last_hidden_state)
        )
        return *features, *positions


class TrackerStep(_OfVideo):
    """The mask of one object in a frame, from a bank of memories with as many places as the host may fill.

    transformers joins as many memories as there are; here a place that is no memory has the mark 0, and attention
    does not see it. The order of the places has no effect.

    Args:
        model: `Sam3VideoModel`. Its tracker attends by another implementation from now on.
    """

    def __init__(self, model: Any):
        super().__init__(model)
        attend_by(model.tracker_model, _ATTENTION)

    def forward(
        self, vision_feat_0: Tensor, vision_feat_1: Tensor, vision_feat_2: Tensor, vision_pos_2: Tensor,
        spatial_memory: Tensor, spatial_memory_pos: Tensor, spatial_tpos_idx: Tensor, spatial_valid: Tensor,
        object_pointers: Tensor, ptr_tpos: Tensor, ptr_valid: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """The masks, the pointer and the score of the object.

        Args:
            vision_feat_0, vision_feat_1, vision_feat_2, vision_pos_2: of `TrackerEncode`.
            spatial_memory, spatial_memory_pos: of `MemoryEncode`, (places, height * width, 1, width of memories).
            spatial_tpos_idx: the row of the embedding of time, of each place.
            spatial_valid: 1 for a memory, 0 for a place without one.
            object_pointers: (places, 1, width).
            ptr_tpos: how long ago each was, as a share of the longest time.
            ptr_valid: as `spatial_valid`.
        """
        tracker, dtype = self.model.tracker_model, vision_feat_2.dtype
        parts = tracker.hidden_dim // tracker.mem_dim
        times = tracker.memory_temporal_positional_encoding[spatial_tpos_idx]
        pointers = object_pointers.to(dtype).unflatten(2, (parts, tracker.mem_dim)).permute(0, 2, 1, 3).flatten(0, 1)
        moments = torch.zeros_like(pointers)
        if tracker.config.enable_temporal_pos_encoding_for_object_pointers:
            sines = get_1d_sine_pe(ptr_tpos, dim=tracker.hidden_dim).to(dtype)
            moments = tracker.temporal_positional_encoding_projection_layer(sines)[:, None]
            moments = moments.repeat_interleave(parts, dim=0)
        memory = torch.cat([spatial_memory.to(dtype).flatten(0, 1), pointers])
        positions = torch.cat([(spatial_memory_pos.to(dtype) + times).flatten(0, 1), moments])
        count = spatial_memory.shape[1]
        marks = torch.cat([spatial_valid.repeat_interleave(count), ptr_valid.repeat_interleave(parts)]).to(dtype)
        with _with_mask(((1 - marks) * _HIDDEN)[None, None, None]):
            remembered = tracker.memory_attention(
                current_vision_features=vision_feat_2, current_vision_position_embeddings=vision_pos_2,
                memory=memory, memory_posision_embeddings=positions, num_object_pointer_tokens=pointers.shape[0],
            )  # fmt: skip
        size = tuple(tracker.backbone_feature_sizes[-1])
        features = remembered.squeeze(1).mT.unflatten(2, size)
        found = masks_of_frame(tracker, [*self.maps(vision_feat_0, vision_feat_1), features])
        return found.pred_masks, found.high_res_masks, found.object_pointer.to(MEMORY_DTYPE), found.object_score_logits


class MemoryEncode(_OfVideo):
    """The memory of a mask, (height * width, 1, width of memories), and its positions.

    transformers rounds the memory to bfloat16 to save room; this is the number of `MEMORY_DTYPE` that is nearest.
    """

    def forward(
        self, vision_feat_2: Tensor, mask_logits: Tensor, object_score_logits: Tensor, binarize_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        tracker, config = self.model.tracker_model, self.model.tracker_model.config
        decided = torch.where(mask_logits > 0, _DECIDED, -_DECIDED).to(mask_logits.dtype)
        mask = torch.sigmoid(torch.where(binarize_mask > 0.5, decided, mask_logits))
        scaled = mask * config.sigmoid_scale_for_mem_enc + config.sigmoid_bias_for_mem_enc
        memory, positions = tracker.memory_encoder(self.maps(vision_feat_2)[0], scaled)
        if (absent := tracker.occlusion_spatial_embedding_parameter) is not None:
            is_absent = (object_score_logits <= 0).to(memory.dtype)
            memory = memory + is_absent[..., None] * absent[..., None, None]
        return tuple(each.to(MEMORY_DTYPE).flatten(2).permute(2, 0, 1) for each in (memory, positions))  # type: ignore[return-value]


class TrackerMaskInit(_OfVideo):
    """The pointer to a new object, (1, 1, width), from the mask of its detection, which is 1 or 0."""

    def forward(
        self, vision_feat_0: Tensor, vision_feat_1: Tensor, vision_feat_2: Tensor, mask_input: Tensor
    ) -> Tensor:
        maps = [*self.maps(vision_feat_0, vision_feat_1), *self.maps(vision_feat_2)]
        return pointer_of_mask(self.model.tracker_model, maps, mask_input > 0).to(MEMORY_DTYPE)
