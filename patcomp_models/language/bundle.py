"""Bundles: an asset, a tokenizer and `metadata.json` in a folder, as Apple's Swift package loads them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from patcomp.emit.asset import Asset
from patcomp.emit.unconstrained import unconstrained
from patcomp_models.bundle_folders.contract import PROCESSOR
from patcomp_models.checkpoints.json_files import metadata_in
from patcomp_models.errors import LanguageModelError
from patcomp_models.language.batches import generate_together
from patcomp_models.language.bundle_assets import (
    calls_of_asset,
    counted_calls,
    empty_caches,
    empty_states,
    open_size,
    opened_asset,
)
from patcomp_models.language.bundle_tokenizer import BundleTokenizer
from patcomp_models.language.contract import (
    ADAPTERS,
    BATCH,
    DRAFT,
    EMBEDDING,
    FIRST_LENGTH,
    HIDDEN,
    MAIN,
    OVERRIDES,
    PER_LAYER,
    SLIDING_WINDOW,
    STOPS,
    TOKENS,
    TOWER,
    VISION,
    drafts_in,
)
from patcomp_models.language.generation import (
    Draft,
    Drafting,
    Generation,
    Heads,
    HiddenStates,
    Session,
    draft_without,
    feeding,
    greedy,
    speculative,
)
from patcomp_models.language.hearing import (
    EMBED,
    SOUND,
    features_beside_tokens,
    features_of_sound,
    heard_call,
    heard_prompt,
    several,
    sound_runs,
)
from patcomp_models.language.per_layer import PerLayerTable
from patcomp_models.language.static_run import function_sizes, generate_static
from patcomp_models.language.vision.generating import embedded_call, expanded_prompt, features_of, tower_run
from patcomp_models.language.vision.images import pixels_of
from patcomp_models.language.vision.media import Media, prepared_media
from patcomp_models.language.vision.moments import VIDEO, features_of_videos, several_videos
from patcomp_models.language.vision.packed import PACKED, Pack, packed_pictures
from patcomp_models.language.vision.pictures import prepared_pictures
from patcomp_models.language.vision.prompts import has_lines, placed
from patcomp_models.language.vision.shapes import check_one_shape, image_functions


@dataclass(frozen=True)
class Bundle:
    """A language model on disk."""

    path: Path
    """The folder."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))

    @property
    def metadata(self) -> dict[str, Any]:
        """The content of `metadata.json`.

        Raises:
            BundleError: the folder is no bundle.
        """
        return metadata_in(self.path)

    @property
    def asset(self) -> Path:
        """The `.aimodel` folder."""
        return self.path / str(self.metadata["assets"]["main"])

    def generate(
        self,
        prompt: Sequence[int] | str,
        max_new_tokens: int = 16,
        image: Any = None,
        *,
        audio: Any = None,
        video: Any = None,
        draft: Bundle | str | Path | Draft | Literal[True] | None = None,
        drafted: int | None = None,
        ignore_eos: bool = False,
        adapter: str | None = None,
    ) -> list[int]:
        """The most probable next tokens, on the Core AI runtime. It is for checks, not for speed.

        A token that ends a text (`language.stop_token_ids` of `metadata.json`) is the last, as in `model.generate` of
        transformers.

        Args:
            prompt: token ids; or a text, which the bundle's tokenizer splits. With images, it has the image token once
                at the place of each.
            max_new_tokens: how many tokens to generate at most.
            image: for a bundle with vision: the path of a file, an image of Pillow, or prepared pixels: a NumPy array
                of a shape of the bundle, (1, 3, height, width); or a list of several. A bundle with a processor makes
                what the processor does of files and images of Pillow beside a text.
            audio: for a bundle that hears: samples at the rate of the model, (samples,) of floats from -1 to 1, beside
                a text with the placeholder of the processor; or a list of several recordings; or what the processor
                made, beside its token ids.
            video: for a bundle with functions for videos: frames, (frames, height, width, 3) of uint8, or a list of
                pictures, or a dict of them as `frames` and of the frames of a second as `fps`; or a list of several.
                Beside token ids, what the processor made of all of them.
            draft: what foresees tokens, which then take fewer calls of the model: a bundle of a smaller model of text
                or its path, `True` for the draft in the bundle's own asset, or a function of all tokens so far and a
                number. The tokens are the same, up to equal logits: several tokens in one call are rounded in another
                order.
            drafted: how many tokens to draft for a call; by default those of the function `verify`, or 4.
            ignore_eos: whether to go on behind a token that ends a text.
            adapter: the name of an adapter that the bundle has beside its model (`adapters=`).

        Raises:
            LanguageModelError: the prompt is empty or too long, the bundle has no tokenizer for a text, or no such
                adapter, or the draft does not fit the bundle; the bundle takes no image, the image cannot be read, or
                the prompt has no place for it.
            MissingToolchainError: coreai-core is not installed.
        """
        return self.generation(
            prompt, max_new_tokens, image, audio=audio, video=video, draft=draft, drafted=drafted,
            ignore_eos=ignore_eos, adapter=adapter,
        ).tokens  # fmt: skip

    def generate_batch(
        self, prompts: Sequence[Sequence[int] | str], max_new_tokens: int = 16, *, ignore_eos: bool = False
    ) -> list[list[int]]:
        """The most probable next tokens of several prompts, for a bundle of `batch=`; more prompts take further calls.

        Args:
            prompts: token ids, or texts.
            max_new_tokens, ignore_eos: as of `generate`.

        Raises:
            LanguageModelError: the bundle takes one text in a call; or a prompt is empty or too long.
        """
        texts = [self._words.split(each) if isinstance(each, str) else [*each] for each in prompts]
        if self._batch == 1:
            raise LanguageModelError(f"the bundle {str(self.path)!r} takes one text in a call; convert it with batch=")
        with ExitStack() as opened:
            asset = opened_asset(self.asset, opened)
            empty, stops = empty_states(asset.described(MAIN)), [] if ignore_eos else self._stops
            call = calls_of_asset(asset)
            return generate_together(call, empty, texts, max_new_tokens, self._limit, stops, self._batch)

    @property
    def _batch(self) -> int:
        """How many texts a call takes."""
        return int(self.metadata["language"].get(BATCH, 1))

    def generation(
        self,
        prompt: Sequence[int] | str,
        max_new_tokens: int = 16,
        image: Any = None,
        *,
        audio: Any = None,
        video: Any = None,
        draft: Bundle | str | Path | Draft | Literal[True] | None = None,
        drafted: int | None = None,
        ignore_eos: bool = False,
        adapter: str | None = None,
    ) -> Generation:
        """As `generate`, with the number of calls of the model.

        Raises:
            As `generate`.
        """
        metadata, recordings, videos = self.metadata, several(audio), several_videos(video)
        sees = metadata["kind"] == VISION
        if recordings and SOUND not in metadata:
            raise LanguageModelError(f"the bundle {str(self.path)!r} takes no audio")
        if videos and not sees:
            raise LanguageModelError(f"the bundle {str(self.path)!r} takes no videos")
        if SOUND in metadata and not sees:
            if not recordings:
                raise LanguageModelError(f"the bundle {str(self.path)!r} needs a recording, audio=")
            if image is not None or draft is not None or adapter is not None:
                raise LanguageModelError("a bundle that hears takes no image=, draft= or adapter=")
            return self._generation_with_audio(prompt, max_new_tokens, recordings, () if ignore_eos else self._stops)
        adapters = metadata["language"].get(ADAPTERS, {})
        if adapter is not None and (adapter not in adapters or draft is not None):
            known = f"it has {', '.join(adapters) or 'none'}, which go without draft="
            raise LanguageModelError(f"the bundle {str(self.path)!r} does not run the adapter {adapter!r}; {known}")
        if self._batch > 1:
            raise LanguageModelError(
                f"the bundle {str(self.path)!r} takes {self._batch} texts in a call; `Bundle.generate_batch` gives them"
            )
        images = [] if image is None else [*image] if isinstance(image, list | tuple) else [image]
        media = self._media(prompt, images, recordings, videos)
        tokens = media.tokens
        limit, stops = self._limit, () if ignore_eos else self._stops
        if not tokens or len(tokens) + max_new_tokens > limit:
            raise LanguageModelError(
                f"a prompt of {len(tokens)} tokens and {max_new_tokens} new ones; the bundle takes 1 to {limit} in all"
            )
        if sees:
            return self._generation_with_vision(media, max_new_tokens, draft, drafted, stops)
        with ExitStack() as opened:
            asset = opened_asset(self.asset, opened)
            if sizes := function_sizes(asset.function_names):
                if draft is not None:
                    raise LanguageModelError(
                        "draft= goes with bundles for target='gpu'; the functions of fixed sizes take no drafted tokens"
                    )
                runnable = opened.enter_context(unconstrained(asset))
                calls, window = itertools.count(), metadata["language"].get(OVERRIDES, {}).get(SLIDING_WINDOW, 0)
                table = PerLayerTable(self.path, metadata[PER_LAYER]).rows_of if PER_LAYER in metadata else None
                made = generate_static(
                    counted_calls(runnable, calls), sizes, empty_caches(runnable, sizes), tokens, max_new_tokens, stops,
                    window=window, rows=table,
                )  # fmt: skip
                return Generation(made, next(calls))
            functions = self._plain_functions(asset) if adapter is None else [adapters[adapter]]
            session = self._session(asset, functions)
            if draft is None or max_new_tokens < 1:
                return greedy(session, tokens, max_new_tokens, stops)
            foresees = self._draft(draft, asset, opened, session)
            return speculative(session, foresees, tokens, max_new_tokens, drafted, stops)

    def prepared(
        self, prompt: Sequence[int] | str, images: Sequence[Any]
    ) -> tuple[list[int], list[np.ndarray], Pack | None]:
        """The tokens of a prompt with those of its images, the pixels that the tower takes, one after the other, and
        what makes of their features those of the image tokens, if they are others.

        Args:
            prompt, images: as of `generate`.

        Raises:
            LanguageModelError: as `generate`.
        """
        metadata = self.metadata
        vision = metadata["vision"] if metadata["kind"] == VISION else {}
        if images and not vision:
            raise LanguageModelError(f"the bundle {str(self.path)!r} takes no image; `patcomp convert-vlm` makes one")
        tiles: list[np.ndarray] = []
        pack: Pack | None = None
        has_tiles = PROCESSOR in vision and isinstance(prompt, str) and bool(images)
        if has_tiles and not any(isinstance(each, np.ndarray) for each in images):
            if vision.get(PACKED):
                tokens, tiles, pack = packed_pictures(self.path, vision, str(prompt), images)
            else:
                tokens, tiles, _ = prepared_pictures(self.path, vision, str(prompt), images)
        else:
            tokens = self._words.split(placed(prompt, vision)) if isinstance(prompt, str) else list(prompt)
        if prompt and not tokens:
            raise LanguageModelError(
                f"the tokenizer of {str(self.path)!r} finds no token in {prompt!r}; give token ids"
            )
        if vision and not tiles:
            tiles = [pixels_of(each, vision) for each in images]
            functions = image_functions(vision)
            counts = [functions[each.shape[2:]].tokens for each in tiles]
            is_square = all(functions[each.shape[2:]].name == MAIN for each in tiles)
            if has_lines(vision) and isinstance(prompt, str) and not is_square:
                raise LanguageModelError(
                    "tokens stand between lines of an image, and a text has those of the square only; give files of "
                    "images to a bundle with a processor, or token ids"
                )
            tokens = expanded_prompt(tokens, vision, counts=counts, shown=self._words.of_image(vision))
        check_one_shape([each.shape[2:] for each in tiles], vision)
        return tokens, tiles, pack

    def _media(
        self, prompt: Sequence[int] | str, images: Sequence[Any], recordings: Sequence[Any], videos: Sequence[Any]
    ) -> Media:
        """The tokens of a prompt, and what the functions of the bundle read beside them."""
        if not recordings and not videos:
            return Media(*self.prepared(prompt, images))
        return prepared_media(self.path, self.metadata, prompt, images, recordings, videos)

    def _generation_with_vision(
        self,
        media: Media,
        new: int,
        draft: Bundle | str | Path | Draft | Literal[True] | None,
        drafted: int | None,
        stops: Sequence[int],
    ) -> Generation:
        """Generate with an asset for each role; the whole prompt is one call, as it is with Apple's engine.

        A smaller model that drafts is of text, and reads the tokens without those of images and sounds.
        """
        metadata, tokens = self.metadata, media.tokens
        with ExitStack() as opened:
            assets = {role: opened_asset(self.path / file, opened) for role, file in metadata["assets"].items()}
            features = self._features(media, assets)
            call = embedded_call(assets[EMBEDDING].run, calls_of_asset(assets[MAIN]), features)
            empty = empty_states(assets[MAIN].described())
            session = Session(call, {MAIN: None}, empty, self._limit, piece=len(tokens))
            if draft is None or new < 1:
                return greedy(session, tokens, new, stops)
            if draft is True and DRAFT in assets[MAIN].function_names:
                hidden = HiddenStates()
                session.call, own = hidden.of_model(call), hidden.to_head(call)
                empty = empty_states(assets[MAIN].described(DRAFT))
                head = Session(own, {DRAFT: None}, empty, self._limit, piece=len(tokens))
                return speculative(session, Drafting(head, skipped=1), tokens, new, drafted, stops)
            foresees = self._draft(draft, assets[MAIN], opened, session)
            if isinstance(foresees, Drafting):
                foresees = draft_without({metadata["vision"]["image_token_id"], *features}, foresees)
            return speculative(session, foresees, tokens, new, drafted, stops)

    def _features(self, media: Media, assets: Mapping[str, Asset]) -> dict[int, np.ndarray]:
        """The features of images and sounds, (1, tokens, width), by their token."""
        metadata, made = self.metadata, {}
        vision = metadata["vision"]
        if media.pixels:
            seen = features_of(tower_run(assets[TOWER].run, vision), *media.pixels)
            made[int(vision["image_token_id"])] = seen if media.pack is None else media.pack(seen)
        if media.moments:
            token = int(vision[VIDEO]["video_token_id"])
            made[token] = features_of_videos(assets[TOWER].run, media.moments, media.tokens.count(token))
        if media.recordings:
            run, audio = partial(assets[SOUND].run, entrypoint=SOUND), metadata[SOUND]
            runs = sound_runs(media.tokens, audio)
            made[int(audio["audio_token_id"])] = features_of_sound(run, media.recordings, runs)
        for token in {int(vision["image_token_id"]), *made}:
            found, wanted = media.tokens.count(token), made[token].shape[1] if token in made else 0
            if found != wanted:
                raise LanguageModelError(
                    f"the prompt has the token {token} {found} times, for {wanted} rows of features"
                )
        return made

    def _generation_with_audio(
        self, prompt: Sequence[int] | str, new: int, recordings: Sequence[Any], stops: Sequence[int]
    ) -> Generation:
        """Generate with the functions `audio`, `embed` and `main`; the whole prompt is one call."""
        audio = self.metadata[SOUND]
        tokens, heard = heard_prompt(self.path, audio, prompt, recordings)
        if not tokens or len(tokens) + new > self._limit:
            raise LanguageModelError(
                f"a prompt of {len(tokens)} tokens and {new} new ones; the bundle takes 1 to {self._limit} in all"
            )
        with ExitStack() as opened:
            asset, runs = opened_asset(self.asset, opened), sound_runs(tokens, audio)
            hear, embed = (partial(asset.run, entrypoint=name) for name in (SOUND, EMBED))
            call = calls_of_asset(asset)
            if audio.get("is_added"):
                features = features_beside_tokens(hear, heard[0], len(tokens))
                new, call = min(new, features.shape[1] - len(tokens)), heard_call(embed, call, features)
            else:
                features = features_of_sound(hear, heard, runs, is_padded=audio["frames"] is not None)
                call = embedded_call(embed, call, {audio["audio_token_id"]: features})
            session = Session(call, {MAIN: None}, empty_states(asset.described(MAIN)), self._limit, piece=len(tokens))
            return greedy(session, tokens, new, stops)

    @property
    def _limit(self) -> int:
        return int(self.metadata["language"]["max_context_length"])

    @property
    def _stops(self) -> list[int]:
        """The tokens that end a text.

        Raises:
            LanguageModelError: `metadata.json` has something else.
        """
        found = self.metadata["language"].get(STOPS, [])
        if not isinstance(found, list) or not all(type(each) is int for each in found):
            raise LanguageModelError(f"language.{STOPS} of {str(self.path)!r} is {found!r}, and must be token ids")
        return found

    def _plain_functions(self, asset: Asset) -> list[str]:
        """The functions of the model itself: no drafts, and none with an adapter."""
        others = {*drafts_in(asset.function_names), *self.metadata["language"].get(ADAPTERS, {}).values()}
        return [name for name in asset.function_names if name not in others]

    def _session(self, asset: Asset, functions: Sequence[str]) -> Session:
        """A session at the start with some of the functions of the asset."""
        described = {name: asset.described(name) for name in functions}
        sizes = {name: open_size(found.input_descriptor(TOKENS).shape[1]) for name, found in described.items()}
        call = calls_of_asset(asset)
        takes_rows = any(PER_LAYER in found.input_names for found in described.values())
        fed = feeding(PerLayerTable(self.path, self.metadata[PER_LAYER]).fed, call) if takes_rows else call
        empty = empty_states(next(iter(described.values())))
        length = self.metadata["language"].get(FIRST_LENGTH) if not drafts_in(functions) else None
        return Session(fed, sizes, empty, self._limit, first_length=length)

    def _draft(
        self, draft: Bundle | str | Path | Draft | Literal[True], asset: Asset, opened: ExitStack, session: Session
    ) -> Draft:  # fmt: skip
        """A function that foresees tokens; a head of the model reads the hidden states of its session.

        Raises:
            LanguageModelError: the asset has no draft, or the smaller model has another vocabulary or form.
        """
        if draft is True:
            if DRAFT not in asset.function_names:
                raise LanguageModelError(
                    f"the bundle {str(self.path)!r} has no draft in its asset; convert it with draft=FOLDER or "
                    "draft='mtp', or pass draft= with the bundle of a smaller model"
                )
            if HIDDEN not in asset.described(DRAFT).input_names:
                return Drafting(self._session(asset, [DRAFT]))
            heads, before = [], session
            for depth, name in enumerate(drafts_in(asset.function_names)):
                head, states = self._session(asset, [name]), HiddenStates(depth)
                before.call, head.call = states.of_model(before.call), states.to_head(head.call)
                heads.append(Drafting(head, skipped=depth + 1))
                before = head
            return heads[0] if len(heads) == 1 else Heads(heads)
        if not isinstance(draft, Bundle | str | Path):
            return draft
        smaller = draft if isinstance(draft, Bundle) else Bundle(Path(draft))
        if not (smaller.path / "metadata.json").is_file():
            raise LanguageModelError(f"the draft {str(smaller.path)!r} is not a bundle: there is no metadata.json")
        if smaller.metadata["kind"] == VISION:
            raise LanguageModelError(
                f"the draft {str(smaller.path)!r} takes images, and a draft is a bundle of text only; convert its "
                "language model with `patcomp convert-lm`"
            )
        words = [int(each.metadata["language"]["vocab_size"]) for each in (self, smaller)]
        if words[0] != words[1]:
            raise LanguageModelError(
                f"the draft {str(smaller.path)!r} has {words[1]} tokens and the model {words[0]}; a draft must have the"
                " same vocabulary"
            )
        other = opened_asset(smaller.asset, opened)
        if function_sizes(other.function_names):
            raise LanguageModelError(
                f"the draft {str(smaller.path)!r} is of the Neural Engine's form; convert it with target='gpu'"
            )
        return Drafting(smaller._session(other, smaller._plain_functions(other)))

    def text(self, prompt: str, max_new_tokens: int = 16, image: Any = None) -> str:
        """The text that continues a prompt.

        Raises: as `generate`.
        """
        return self.decoded(self.generate(prompt, max_new_tokens, image))

    def decoded(self, tokens: Sequence[int]) -> str:
        """The text of tokens.

        Raises:
            LanguageModelError: the bundle has no tokenizer.
        """
        return self._words.decoded(tokens)

    def tokens_of(self, text: str) -> list[int]:
        """The token ids of a text, without special ones.

        Raises:
            LanguageModelError: the bundle has no tokenizer.
        """
        return self._words.split(text, add_special_tokens=False)

    @property
    def _words(self) -> BundleTokenizer:
        return BundleTokenizer(self.path)
