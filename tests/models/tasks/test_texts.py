"""Texts as examples for the model of a folder: its tokenizer makes the inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from patcomp_models.tasks import convert_folder
from patcomp_models.tasks.texts import inputs_of_texts
from tests.helpers.command import Command
from tests.models.tasks.folders import folder

SPOKEN = ["the cat sat on the mat", "a dog ran", "the sun is up and it is warm and the dog sat on a mat"] * 3


def classifier(place: Path) -> Any:
    """A small model for texts, with a tokenizer of words that puts an end behind each text."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    model = folder(place, "BertForSequenceClassification")
    words = ["<unk>", "<end>", *sorted({word for text in SPOKEN for word in text.split()})]
    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    end = made.token_to_id("<end>")
    made.post_processor = TemplateProcessing(
        single="$A <end>", pair="$A <end> $B:1 <end>:1", special_tokens=[("<end>", end)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", pad_token="<end>", model_max_length=64
    )  # fmt: skip
    tokenizer.save_pretrained(place)
    return model


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("texts") / "bert"
    classifier(place)
    return place


def test_texts_of_a_folder(place: Path, tmp_path: Path, patcomp: Command) -> None:
    """Files and lines of texts are examples of a sweep, and round weights."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text(SPOKEN[0])
    lines = [json.dumps(SPOKEN[1]), json.dumps({"text": SPOKEN[2], "label": 1}), ""]
    (tmp_path / "texts" / "b.jsonl").write_text("\n".join(lines))
    texts = str(tmp_path / "texts")
    done = patcomp("compress", str(place), "--sweep", "--check", texts, "--calibrate", texts, "--json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)["rows"]
    assert rows[0]["agreement"] == 1
    assert rows[1]["signal"] > rows[2]["signal"] > rows[3]["signal"] > 0
    words = ["compress", str(place), "--config", "w4_block32", "--json"]
    given = [("--check", "inputs"), ("--check", texts), ("--calibrate", texts)]
    own, near, rounded = (json.loads(patcomp(*words, *each).out)["output_psnr"]["logits"] for each in given)
    assert own != near <= rounded  # what is rounded by examples is kept where it is better


def test_the_tokens_are_those_of_the_tokenizer(place: Path) -> None:
    """The outputs are the model's for what the tokenizer makes of a text; texts are cut where they are too long."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    program, tokenizer = convert_folder(place), AutoTokenizer.from_pretrained(place)
    model = AutoModelForSequenceClassification.from_pretrained(place).eval()
    inputs = inputs_of_texts(place, [(text,) for text in [*SPOKEN[:3], "cat " * 99]], program)
    assert [each["input_ids"].shape[1] for each in inputs] == [7, 4, 16, 64]
    for text, each in zip(SPOKEN, inputs[:3], strict=False):
        with torch.no_grad():
            wanted = model(**{name: value for name, value in tokenizer(text, return_tensors="pt").items()
                              if name != "token_type_ids"}).logits  # fmt: skip
        torch.testing.assert_close(torch.as_tensor(program.run(each)["logits"]), wanted, atol=1e-4, rtol=1e-4)
    fixed = convert_folder(place, fixed={"length": 9})
    (padded,) = inputs_of_texts(place, [(SPOKEN[1],)], fixed)
    assert padded["attention_mask"].tolist() == [[1] * 4 + [0] * 5]


def test_a_pair_of_texts(place: Path, tmp_path: Path) -> None:
    classifier(tmp_path)
    (pair,) = inputs_of_texts(place, [("the cat", "a dog")], convert_folder(place))
    assert pair["input_ids"].shape == (1, 6)


WRONG = {
    "another line": ({"a.jsonl": '"a"\n{"words": "b"}'}, "bert", "a.jsonl:2 must be a JSON string, or"),
    "two kinds": ({"a.txt": "a", "b.npz": ""}, "bert", "has texts, and b.npz beside them"),
    "a function": ({"a.txt": "a"}, "net.py:make", "is a function of a Python file, without a tokenizer"),
    "pictures": ({"a.txt": "a"}, "vit", "takes pixel_values, and no tokens of one text"),
    "no tokenizer": ({"a.txt": "a"}, "words", "has no tokenizer"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_uses(case: str, place: Path, tmp_path: Path, patcomp: Command) -> None:
    files, model, message = WRONG[case]
    (tmp_path / "texts").mkdir()
    for name, text in files.items():
        (tmp_path / "texts" / name).write_text(text)
    (tmp_path / "net.py").write_text("import torch\ndef make():\n    return torch.nn.ReLU(), (torch.ones(2),)\n")
    named = {"bert": str(place), "net.py:make": "net.py:make"}
    if model not in named:
        kinds = {"vit": "ViTForImageClassification", "words": "BertForSequenceClassification"}
        folder(tmp_path / model, kinds[model])
    done = patcomp("compress", named.get(model, model), "--sweep", "--check", "texts")
    assert done.code != 0
    assert message in done.err


def test_examples_of_both_options(place: Path, patcomp: Command) -> None:
    done = patcomp("compress", str(place), "--check", "inputs", "--calibrate", str(place))
    assert "--check and --calibrate take the same examples" in done.err
