"""Every class that transformers' auto classes name has a task, a kind of bundle, or a sentence that says why not."""

from __future__ import annotations

import pytest

from patcomp_models.checkpoints.folders import LANGUAGE_MODELS
from patcomp_models.tasks.table import ELSEWHERE, WITHOUT_TASK, refusal, task_of


def named_classes(prefix: str) -> set[str]:
    """The classes in the tables of transformers whose names begin so."""
    from transformers.models.auto import modeling_auto

    return {
        name
        for table, rows in vars(modeling_auto).items()
        if table.startswith(prefix) and table.endswith("_MAPPING_NAMES")
        for row in rows.values()
        for name in (row if isinstance(row, list | tuple) else [row])
    }


def test_every_head_has_a_task_or_a_sentence() -> None:
    heads = named_classes("MODEL_FOR_")
    assert len(heads) > 500
    others = {name for name in heads if not name.endswith(LANGUAGE_MODELS)}
    assert {name for name in others if task_of(name) is None and refusal(name) is None} == set()


def test_every_sentence_is_of_a_class() -> None:
    named = named_classes("MODEL_")
    assert [end for end in (*WITHOUT_TASK, *ELSEWHERE) if not any(name.endswith(end) for name in named)] == []


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("LayoutLMForQuestionAnswering", "document question answering"),
        ("LayoutLMv3ForQuestionAnswering", "question answering"),
        ("XLNetForQuestionAnsweringSimple", "question answering"),
        ("DeiTForImageClassificationWithTeacher", "image classification"),
        ("PerceiverForImageClassificationLearned", "image classification"),
        ("Wav2Vec2BertForSequenceClassification", "audio classification"),
        ("AltCLIPModel", "two towers"),
        ("WhisperForConditionalGeneration", "speech recognition"),
    ],
)
def test_tasks_of_special_names(name: str, task: str) -> None:
    found = task_of(name)
    assert found is not None
    assert found.name == task
    assert refusal(name) is None


@pytest.mark.parametrize("name", ["DiaForConditionalGeneration", "LasrForCTC", "SwinBackbone", "JevForDecision"])
def test_sentences_of_classes_without_a_task(name: str) -> None:
    assert task_of(name) is None
    assert refusal(name)
