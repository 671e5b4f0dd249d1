"""The tokens of a bundle by a loop on Apple's runtime that shares no line with `Bundle.generate`.

    python -m benchmarks.runtime_loop BUNDLE --prompt 5 6 7 [--tokens 8] [--pixels TILES.npy] [--read INPUTS.npz]

It knows what `docs/language-models.md` says of a bundle and nothing else: assets by role, functions, their inputs and
states. `--pixels` has the tiles of pictures, (tiles, 3, height, width), whose tokens are in the prompt; `--read` has
what the function `encode` of models with an encoder and a decoder reads. Caches have room for all tokens at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


class Functions:
    """The functions of an asset on the runtime."""

    def __init__(self, model: Any):
        self._model = model
        self._found: dict[str, Any] = {}

    @classmethod
    async def opened(cls, asset: Path, stack: AsyncExitStack) -> Functions:
        """Those of a folder `.aimodel`; they are closed with the stack."""
        from coreai.authoring.asset import AIModelAsset

        return cls(await stack.enter_async_context(AIModelAsset.load(str(asset)).executable()))

    def named(self, name: str) -> Any:
        if name not in self._found:
            self._found[name] = self._model.load_function(name)
        return self._found[name]

    def empty(self, name: str, open_size: int, texts: int = 1) -> Arrays:
        """The states of a function: zeros, in each open axis but that of texts `open_size`."""
        described = self.named(name).desc
        made = {}
        for state in described.state_names:
            told = described.state_descriptor(state)
            shape = [(texts if axis == 1 else open_size) if size < 0 else size for axis, size in enumerate(told.shape)]
            made[state] = np.zeros(shape, told.dtype)
        return made

    async def run(self, name: str, inputs: Mapping[str, np.ndarray], states: Arrays | None = None) -> Arrays:
        """The outputs of a call; states are written in place."""
        from coreai.runtime import NDArray

        function, held = self.named(name), {}
        given = {each: NDArray(np.ascontiguousarray(value)) for each, value in inputs.items()}
        if states:
            held = {each: NDArray(value) for each, value in states.items()}
        results = await (function(given, held) if held else function(given))
        for each, value in held.items():
            states[each] = np.array(value.numpy())  # type: ignore[index]
        return {each: np.array(results[each].numpy()) for each in function.desc.output_names}


def _int32(values: Any) -> np.ndarray:
    return np.asarray(values, np.int32)


def _of_shape(image: np.ndarray, vision: Mapping[str, Any]) -> str:
    """The function of the vision tower for an image."""
    shapes = vision.get("image_shapes", {}).items()
    fitting = (name for name, told in shapes if (told["height"], told["width"]) == image.shape[2:])
    return next(fitting, "main")


async def language(
    bundle: Path, prompt: Sequence[int], count: int, tiles: Sequence[np.ndarray] = (),
    sounds: Sequence[Mapping[str, np.ndarray]] = (),
) -> list[int]:  # fmt: skip
    """The most probable next tokens of a language model, or of one that sees or hears, by its function `main`.

    Args:
        bundle: a folder of the dynamic form.
        prompt: tokens, with as many of an image or of a sound as its features are.
        count: how many to generate.
        tiles: of the pictures in the prompt, one behind the other, each (1, 3, height, width).
        sounds: windows of the sound in the prompt, each what the function `audio` takes.
    """
    told = json.loads((bundle / "metadata.json").read_text())
    async with AsyncExitStack() as stack:
        assets = {
            role: await Functions.opened(bundle / name, stack)
            for role, name in told["assets"].items() if str(name).endswith(".aimodel")
        }  # fmt: skip
        features = [
            (await assets["vision"].run(_of_shape(each, told["vision"]), {"pixel_values": each}))["image_features"][0]
            for each in tiles
        ]
        features += [(await assets["main"].run("audio", each))["audio_features"][0] for each in sounds]
        table = ("embedding", "main") if "embedding" in assets else ("main", "embed")
        placeholder = told["vision"]["image_token_id"] if tiles else told["audio"]["audio_token_id"] if sounds else -1
        states = assets["main"].empty("main", len(prompt) + count)
        made: list[int] = []
        waiting = list(prompt)
        while len(made) < count:
            done = len(prompt) + len(made)
            inputs = {"input_ids": _int32([waiting]), "position_ids": _int32([range(done)])}
            if "inputs_embeds" in assets["main"].named("main").desc.input_names:
                asset, name = table
                rows = (await assets[asset].run(name, {"input_ids": inputs.pop("input_ids")}))["embeddings"]
                places = [place for place, token in enumerate(waiting) if token == placeholder]
                if places and not made:
                    rows[0, places] = np.concatenate(features)[: len(places)]
                inputs["inputs_embeds"] = rows
            logits = (await assets["main"].run("main", inputs, states))["logits"]
            waiting = [int(logits[0, -1].astype(np.float32).argmax())]
            made += waiting
        return made


async def writing(asset: Path, read: Mapping[str, np.ndarray], start: Sequence[int], count: int) -> list[int]:
    """The most probable tokens of a model with the functions `encode` and `decode`.

    Args:
        asset: a folder `.aimodel`.
        read: what `encode` takes, by name.
        start: the first tokens of the decoder.
        count: how many to generate.
    """
    async with AsyncExitStack() as stack:
        functions = await Functions.opened(asset, stack)
        cross = await functions.run("encode", read)
        states = functions.empty("decode", len(start) + count)
        made, waiting = [*start], [*start]
        while len(made) < len(start) + count:
            inputs = {"input_ids": _int32([waiting]), "position_ids": _int32([range(len(made))]), **cross}
            waiting = [int((await functions.run("decode", inputs, states))["logits"][0, -1].argmax())]
            made += waiting
        return made[len(start) :]


def tokens_of(loop: Coroutine[Any, Any, list[int]]) -> list[int]:
    """The tokens of a loop, which runs in a thread of its own: the caller's may have a running event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, loop).result()


def main() -> None:
    """Print the tokens."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, help="a folder with metadata.json, or with --read an .aimodel")
    parser.add_argument("--prompt", type=int, nargs="+", required=True, help="tokens")
    parser.add_argument("--tokens", type=int, default=8, help="how many to generate")
    parser.add_argument("--pixels", type=Path, help="a file of numpy")
    parser.add_argument("--read", type=Path, help="a file .npz, an array for each input of encode")
    options = parser.parse_args()
    if options.read:
        loop = writing(options.bundle, dict(np.load(options.read)), options.prompt, options.tokens)
    else:
        tiles = [] if options.pixels is None else [each[None] for each in np.load(options.pixels)]
        loop = language(options.bundle, options.prompt, options.tokens, tiles)
    print(*tokens_of(loop))


if __name__ == "__main__":
    main()
