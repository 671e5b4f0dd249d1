"""What `--compress` and `compress=` take: one word or file that says how small the weights become."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from patcomp.compression.budget import bytes_of
from patcomp.compression.config import CompressionConfig
from patcomp.compression.scheme import Scheme, UnknownSchemeError
from patcomp.compression.schemes.integers import Integers
from patcomp.targets import Target, chosen_target

_FOUR_BITS = "4bit"
NAMED: Mapping[str, Mapping[str, Any]] = {
    _FOUR_BITS: {"scheme": "w4_block32"},
    "8bit": {"scheme": "w8"},
    "4bit_weight_palettized_group8": {"scheme": "pal4_group8", "kinds": {"gather": None}},
    "4bit_weight_palettized_group32": {"scheme": "pal4_group32", "kinds": {"gather": None}},
}
"""The configs that people call by these names; the last two are those of Apple's exporter for the Neural Engine. What
`4bit` means depends on the target."""

_HEAD = Scheme.parse("w8")
"""The scheme of a language model's head where `4bit` means integers, because rounding the head loses more than rounding
other weights."""

_BITS, _SHARE = re.compile(r"(\d+(?:\.\d+)?)bits"), re.compile(r"\d+(?:\.\d+)?%")

Given: TypeAlias = "str | Path | Mapping[str, Any] | CompressionConfig | CompressionRequest"
"""What a request is made from."""


@dataclass(frozen=True)
class CompressionRequest:
    """How small the weights of a program become.

    Attributes:
        text: what was asked for, as a bundle tells it.
        config: which scheme each weight gets.
        budget: the bytes that all weights may take, or the share of their present bytes (`"30%"`), if the schemes are
            chosen to fit.
        bits: the same, in bits for each element.
    """

    text: str
    config: CompressionConfig
    budget: str | int | None = None
    bits: float | None = None

    def __post_init__(self) -> None:
        if self.budget is not None:
            bytes_of(self.budget, 1)  # a wrong one is told before a model is converted
        if self.bits is not None and not self.bits > 0:
            raise ValueError(f"a budget needs more than {self.bits:g} bits for each element, such as 4.5bits")

    @property
    def is_budget(self) -> bool:
        """Whether the schemes are chosen to fit."""
        return self.budget is not None or self.bits is not None

    @classmethod
    def of(cls, given: Given, target: Target | str | None = None) -> CompressionRequest:
        """A request from `"4bit"`, `"8bit"`, a budget (`"4.5bits"`, `"30%"`), the name of a scheme, or a config.

        Args:
            given: the request.
            target: the device that the program is for, by which `4bit` is understood; by default integers.

        Raises:
            ValueError: it is none of them; the message lists them.
            OSError: the file of a config cannot be read.
        """
        if isinstance(given, CompressionRequest):
            return given
        text = str(given) if isinstance(given, str | Path) else "mixed"
        if text == _FOUR_BITS and (device := chosen_target(target)) is not None:
            kinds = {"gather": None} if device.keeps_tables else {}
            return cls(text, CompressionConfig.of({"scheme": device.four_bits, "kinds": kinds}))
        if text in NAMED:
            return cls(text, CompressionConfig.of(NAMED[text]))
        if match := _BITS.fullmatch(text):
            return cls(text, CompressionConfig.of("w8"), bits=float(match[1]))
        if _SHARE.fullmatch(text):
            return cls(text, CompressionConfig.of("w8"), budget=text)
        try:
            return cls(text, CompressionConfig.of(given))
        except UnknownSchemeError as error:
            raise ValueError(f"{error}; {', '.join(NAMED)}, and budgets such as 4.5bits or 30%") from None

    def with_head(self, names: Sequence[str]) -> CompressionRequest:
        """This request for a language model whose head has these weights."""
        if self.text != _FOUR_BITS or not isinstance(self.config.scheme, Integers):
            return self
        return replace(self, config=replace(self.config, names=dict.fromkeys(names, _HEAD)))

    def applied(self, compress: Callable[..., Any], inputs: Any = None, *, calibrate: bool = False) -> Any:
        """What `AIProgram.compress` makes of a program, by this request."""
        return compress(self.config, budget=self.budget, bits_per_weight=self.bits, inputs=inputs, calibrate=calibrate)
