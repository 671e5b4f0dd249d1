"""The tokens of a bundle by a loop on Apple's runtime that shares no line with `Bundle.generate`.

    python -m benchmarks.runtime_loop BUNDLE --prompt 5 6 7 [--tokens 8] [--pixels TILES.npy] [--sound WINDOWS.npz]
        [--video MOMENTS.npz] [--read INPUTS.npz]

It knows what `docs/language-models.md` says of a bundle and nothing else: assets by role, functions, their inputs and
states. `--pixels` has the tiles of pictures, (tiles, 3, height, width), whose tokens are in the prompt; `--sound` has
the windows of recordings and `--video` the moments of videos, an array for each input, of all calls; `--read` has what
the function `encode` of models with an encoder and a decoder reads. Caches have room for all tokens at once.
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
    sounds: Sequence[Mapping[str, np.ndarray]] = (), moments: Sequence[Mapping[str, np.ndarray]] = (),
) -> list[int]:  # fmt: skip
    """The most probable next tokens of a language model, or of one that sees and hears, by its function `main`.

    Args:
        bundle: a folder of the dynamic form.
        prompt: tokens, with as many of images and of videos as their features are. There may be fewer of a sound, which
            are the first features.
        count: how many to generate.
        tiles: of the pictures in the prompt, one behind the other, each (1, 3, height, width).
        sounds: windows of the sound in the prompt, each what the function `audio` takes.
        moments: of the videos in the prompt, each what the function of its shape takes.
    """
    told = json.loads((bundle / "metadata.json").read_text())
    async with AsyncExitStack() as stack:
        assets = {
            role: await Functions.opened(bundle / name, stack)
            for role, name in told["assets"].items() if str(name).endswith(".aimodel")
        }  # fmt: skip
        features: dict[int, list[np.ndarray]] = {}
        for each in tiles:
            made = await assets["vision"].run(_of_shape(each, told["vision"]), {"pixel_values": each})
            features.setdefault(told["vision"]["image_token_id"], []).append(made["image_features"][0])
        for moment in moments:
            height, width = moment["pixel_values"].shape[2:]
            made = await assets["vision"].run(f"video_{height}x{width}", moment)
            features.setdefault(told["vision"]["video"]["video_token_id"], []).append(made["image_features"][0])
        for window in sounds:
            made = await assets["audio" if "audio" in assets else "main"].run("audio", window)
            features.setdefault(told["audio"]["audio_token_id"], []).append(made["audio_features"][0])
        table = ("embedding", "main") if "embedding" in assets else ("main", "embed")
        states = assets["main"].empty("main", len(prompt) + count)
        written: list[int] = []
        waiting = list(prompt)
        while len(written) < count:
            done = len(prompt) + len(written)
            inputs = {"input_ids": _int32([waiting]), "position_ids": _int32([range(done)])}
            if "inputs_embeds" in assets["main"].named("main").desc.input_names:
                asset, name = table
                rows = (await assets[asset].run(name, {"input_ids": inputs.pop("input_ids")}))["embeddings"]
                for placeholder, own in features.items() if not written else ():
                    places = [place for place, token in enumerate(waiting) if token == placeholder]
                    rows[0, places] = np.concatenate(own)[: len(places)]
                inputs["inputs_embeds"] = rows
            logits = (await assets["main"].run("main", inputs, states))["logits"]
            waiting = [int(logits[0, -1].astype(np.float32).argmax())]
            written += waiting
        return written


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


def _parts(file: Path | None) -> list[Arrays]:
    """The inputs of each call, from arrays that have them one behind the other."""
    arrays = {} if file is None else dict(np.load(file))
    count = min(map(len, arrays.values()), default=0)
    return [{name: each[number] for name, each in arrays.items()} for number in range(count)]


def main() -> None:
    """Print the tokens."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, help="a folder with metadata.json, or with --read an .aimodel")
    parser.add_argument("--prompt", type=int, nargs="+", required=True, help="tokens")
    parser.add_argument("--tokens", type=int, default=8, help="how many to generate")
    parser.add_argument("--pixels", type=Path, help="a file of numpy")
    parser.add_argument("--sound", type=Path, help="a file .npz, an array of windows for each input of audio")
    parser.add_argument("--video", type=Path, help="a file .npz, an array of moments for each input of their function")
    parser.add_argument("--read", type=Path, help="a file .npz, an array for each input of encode")
    options = parser.parse_args()
    if options.read:
        loop = writing(options.bundle, dict(np.load(options.read)), options.prompt, options.tokens)
    else:
        tiles = [] if options.pixels is None else [each[None] for each in np.load(options.pixels)]
        sounds, moments = (_parts(file) for file in (options.sound, options.video))
        loop = language(options.bundle, options.prompt, options.tokens, tiles, sounds, moments)
    print(*tokens_of(loop))


if __name__ == "__main__":
    main()
