"""Latent attention without keys and values of heads. The rule applies only if a user passes it:

    from patterns_catalog.optional import latent_attention
    program = TorchConverter(catalog=[latent_attention]).add_exported_program(exported).to_coreai()

A model makes keys and values of all n tokens from latents, (heads x (key size + value size)) x latent size
multiplications for each of the n tokens. The products can be taken in another order (DeepSeek-V2, arXiv:2405.04434):

    q (Wk l) = (Wk^T q) l        p (Wv l) = Wv (p l)

so that the products are with the q new tokens, and all heads share one key and one value, which are the latents. It is
not a default rule: a token behind many others is faster, and a long prompt is slower.
"""

from __future__ import annotations

import math
from typing import Any

from patcomp.authoring import AtenSource, Composites, aten
from patcomp.ir.extents import extents
from patcomp.ir.types import tensor
from patcomp.ir.value import Value
from patcomp.patterns import ANY, LAST, Attr, Capture, Rewrite, any_of, build, check, compute, rule
from patcomp.patterns.match import Match
from patterns_catalog.views import permuted, viewed


def _scale(match: Match) -> float:
    """The scale of the scores; by default by the width of the query, which is no longer what the scores are over."""
    given, width = match["scale"], match["query"].shape[-1]
    return 1 / math.sqrt(width) if given is None else given


def _attention(
    query: Value, latents: Value, weight: Value, rotated: Value, mask: Value | None, *,
    sizes: list[int], is_causal: bool, scale: float,
) -> Value:  # fmt: skip
    """Attention of a match, (batch, heads, q, value size).

    Args:
        query: (batch, heads, q, key size + rotary size).
        latents: (batch, 1, n, latent size).
        weight: what makes keys and values of latents, (heads x (key size + value size), latent size).
        rotated: the part of a key with its position, (batch, 1, n, rotary size).
        mask: of the scores, of numbers or booleans.
        sizes: key size, value size.
        is_causal: as in PyTorch's op.
        scale: of the scores.
    """
    key_size, size, width = sizes[0], sum(sizes), query.shape[-1]
    assert width is not None
    rows, latent = weight.static_shape
    by_head = viewed(weight, [rows // size, size, latent])
    own, position = _part(query, 3, 0, key_size), _part(query, 3, key_size, width)
    asked, shared = (
        aten.cat(tensor((*x.shape[:-1], latent + width - key_size), x.element_type), [x, y], dim=3)
        for x, y in ((_product(own, _part(by_head, 1, 0, key_size)), position), (latents, rotated))
    )
    result = aten.scaled_dot_product_attention(
        tensor((*query.shape[:-1], latent), query.element_type), asked, shared, latents, mask,
        dropout_p=0.0, is_causal=is_causal, scale=scale, enable_gqa=True,
    )  # fmt: skip
    return _product(result, permuted(_part(by_head, 1, key_size, size), [0, 2, 1]))


@rule(name="attention to latents", example={
    "query": "1x4x3x24xf32", "latents": "1x1x5x16xf32", "weight": "96x16xf32", "rotated": "1x1x5x8xf32",
    "mask": "1x1x3x5xi1", "by_head": [1, 5, 4, 24], "sizes": [16, 8], "wide": [1, 4, 5, 8],
    "is_causal": False, "scale": 0.3,
})  # fmt: skip
def attention_to_latents(
    a: AtenSource, c: Composites, query: Capture, latents: Capture, weight: Capture, rotated: Capture, mask: Capture,
    by_head: Attr, sizes: Attr, wide: Attr, is_causal: Attr, scale: Attr,
) -> Rewrite:  # fmt: skip
    """attention(q, [Wk l, r], Wv l) -> Wv attention([Wk^T q1, q2], [l, r], l), with one key and one value for all heads

    The latent attention of transformers (`expand_kv`): a key is a part of its own for each head, and a part with the
    position, which all heads share.
    """
    made = a.view(a.matmul(latents, a.permute(weight, dims=[1, 0])), size=by_head)
    parts = a.split_with_sizes(a.permute(made, dims=[0, 2, 1, 3]), split_sizes=sizes, dim=LAST)
    shared = a.expand(rotated, size=wide, implicit=ANY)
    key = a.cat([parts[0], shared], dim=LAST)
    result = any_of(*(
        a.scaled_dot_product_attention(
            query, key, parts[1], attn_mask=given, dropout_p=0.0, is_causal=is_causal, scale=scale, enable_gqa=False
        )
        for given in (mask, None)
    ))  # fmt: skip
    return Rewrite(
        result,
        to=build(
            _attention, query, latents, weight, rotated, mask,
            sizes=sizes, is_causal=is_causal, scale=compute("the scale", _scale),
        ),
        where=[
            check("the heads share latents and positions", lambda match: _is_shared(match, made, shared)),
            check("the weight is not unpacked from few bits", lambda match: _is_plain(match["weight"])),
        ],
    )  # fmt: skip


def _is_plain(weight: Value) -> bool:
    """Whether a weight is not computed by an op that unpacks it, which would then run for each part of the weight."""
    return weight.maker is None or weight.maker.name.startswith(("aten.", "coreai.constant"))


def _is_shared(match: Match, made: Any, shared: Any) -> bool:
    """Whether keys and values of each head are made from the same latents, and nothing but heads is repeated.

    Dynamic dimensions that meet in a join are equal, or export would not have taken the program.
    """
    query, latents, weight, rotated = (match[name] for name in ("query", "latents", "weight", "rotated"))
    if {query.rank, latents.rank, rotated.rank} != {4} or len(match["sizes"]) != 2:
        return False
    batch, one, length, latent = latents.shape
    heads, size, rotary = query.shape[1], sum(match["sizes"]), rotated.shape[-1]
    return (
        None not in (heads, latent, rotary)
        and (one, rotated.shape) == (1, (batch, 1, length, rotary))
        and weight.shape == (heads * size, latent)
        and match[made].shape == (batch, length, heads, size)
        and extents(match[made])[0] == extents(latents)[0]  # and the lengths are equal, for the numbers of elements are
        and match[shared].shape == (batch, heads, length, rotary)
        and (query.shape[0], query.shape[-1]) == (batch, match["sizes"][0] + rotary)
    )


def _part(x: Value, axis: int, start: int, end: int) -> Value:
    shape = tensor((*x.shape[:axis], end - start, *x.shape[axis + 1 :]), x.element_type)
    return aten.slice.Tensor(shape, x, dim=axis, start=start, end=end, step=1)


def _product(x: Value, matrices: Value) -> Value:
    """The product with the matrix of each head."""
    return aten.matmul(tensor((*x.shape[:-1], matrices.shape[-1]), x.element_type), x, matrices)
