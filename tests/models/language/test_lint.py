"""The tokens that end a text reach the bundle, and tokenizer, chat template and vocabulary must fit each other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

from patcomp_models.language.contract import STOPS
from patcomp_models.language.lint import tokenizer_problems
from patcomp_models.language.writing import description, stop_token_ids
from tests.models.language.checkpoints import checkpoint

LANGUAGE: dict[str, Any] = {"vocab_size": 8, STOPS: [1, 5]}
WORDS = {"<pad>": 0, "<eos>": 1, "<bos>": 2, "a": 3, "<start_of_turn>": 4, "<end_of_turn>": 5, "<|end|>": 6}
TEMPLATE = "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ m['content'] }}<end_of_turn>{% endfor %}<|end|>"


def tokenizer(folder: Path, words: Any = None, added: Any = (), template: Any = TEMPLATE, **settings: Any) -> Path:
    place = folder / "tokenizer"
    place.mkdir()
    content = {"model": {"vocab": WORDS if words is None else words}, "added_tokens": [*added]}
    (place / "tokenizer.json").write_text(json.dumps(content))
    found = {"bos_token": "<bos>", "eos_token": {"content": "<eos>"}, "chat_template": template, **settings}
    (place / "tokenizer_config.json").write_text(json.dumps(found))
    return folder


def test_what_fits(tmp_path: Path) -> None:
    for number, options in enumerate((
        {}, {"template": None}, {"template": [{"name": "default", "template": TEMPLATE}]},
        {"words": [[word, -1.0] for word in WORDS]}, {"words": {}, "template": None, "eos_token": None},
        {"eos_token": "<end_of_turn>"}, {"template": "<think>{{ messages }}</tool>"},
    )):  # fmt: skip
        (tmp_path / str(number)).mkdir()
        assert tokenizer_problems(tokenizer(tmp_path / str(number), **options), LANGUAGE) == []
    assert tokenizer_problems(tmp_path / "0", {"vocab_size": 8}) == []


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a token behind the vocabulary": ({}, {"vocab_size": 6}, "the tokenizer has the token 6 ('<|end|>'), and language"),
    "an added one": ({"added": [{"id": 8, "content": "b"}]}, {}, "has the token 8 ('b'), and language.vocab_size is 8"),
    "a probable one": ({"words": [[word, 0.0] for word in "abcdefghi"], "template": None}, {STOPS: []}, "the token 8 "),
    "another template": ({"template": "<|im_start|>"}, {}, "the chat template writes <|im_start|>, which is no token "),
    "a template in a list": ({"template": [{"template": "<|a|><|b|>"}]}, {}, "writes <|a|>, <|b|>, which are no token"),
    "a name without a token": ({"bos_token": None}, {}, "writes bos_token, which tokenizer_config.json does not name"),
    "a stop behind the vocabulary": ({}, {STOPS: [1, 8]}, "language.stop_token_ids has 8, and language.vocab_size is "),
    "stops of another model": ({}, {STOPS: [5]}, "the tokenizer ends with '<eos>', token 1, and the model with 5 (lan"),
    "one number": ({}, {STOPS: 1}, "language.stop_token_ids is 1, and must be a list of token ids"),
    "words": ({}, {STOPS: ["a"]}, "language.stop_token_ids is ['a'], and must be a list of token ids"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit(case: str, tmp_path: Path) -> None:
    options, language, message = WRONG[case]
    problems = tokenizer_problems(tokenizer(tmp_path, **options), {**LANGUAGE, **language})
    assert [message in str(problem) for problem in problems] == [True]


def test_a_template_in_a_file(tmp_path: Path) -> None:
    place = tokenizer(tmp_path, template=None)
    (place / "tokenizer" / "chat_template.jinja").write_text("<|other|>")
    assert ["<|other|>" in str(each) for each in tokenizer_problems(place, LANGUAGE)] == [True]
    (place / "tokenizer" / "tokenizer_config.json").write_text("[")
    assert ["is not JSON" in str(each) for each in tokenizer_problems(place, LANGUAGE)] == [True]


def test_stops_reach_the_bundle() -> None:
    """The list of generation_config comes before the number of config, which transformers has otherwise."""
    model: Any = checkpoint("llama")
    changes: list[tuple[Callable[[], object], list[int]]] = [
        (lambda: None, [2]),
        (lambda: setattr(model.generation_config, "eos_token_id", [1, 5]), [1, 5]),
        (lambda: setattr(model.generation_config, "eos_token_id", 0), [0]),
        (lambda: setattr(model, "generation_config", transformers.GenerationConfig()), [2]),
        (lambda: setattr(model.config, "eos_token_id", None), []),
    ]
    for change, wanted in changes:
        change()
        assert stop_token_ids(model) == wanted
        assert description(model, 64, "small", None)["language"].get(STOPS, []) == wanted
