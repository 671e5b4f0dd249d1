"""One module opens the folders of strangers, and finds classes that data names: a test on calls and imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "patcomp_models"
ROOMS = ("bundle_folders", "bundles", "checkpoints", "language", "tasks")
"""The packages that are given folders of strangers."""
READER = "checkpoints/untrusted.py"

OPENING = {
    "open", "read_text", "read_bytes", "fromfile", "memmap", "safe_open", "load_file", "copy2", "copyfile", "copytree",
    "np.load", "torch.load", "json.load", "ModelCard.load", "rmtree", "symlink_to",
    "apply_chat_template", "from_string", "render",  # a chat template may never end
}  # fmt: skip
IMPORTING = {"import_module", "__import__", "exec_module", "spec_from_file_location"}
LIBRARIES = {"from_pretrained", "load_config", "create_model", "from_file"}
"""What libraries do with a folder that `check_folder` has looked at."""

OTHERS = {
    "bundle_folders/unfinished.py": {"read_text", "open", "rmtree"},  # the folder that this process writes
    "bundles/diffusion/result_files.py": {"open"},  # a recording that is written
    "bundles/speech/recordings.py": {"open"},  # the user's recording
    "bundles/synthesis/kokoro.py": {"torch.load", "import_module"},  # of tensors alone; one package
    "language/bundle_tokenizer.py": {"from_file"},  # a file that is checked
    "language/texts.py": {"read_text"},  # the user's texts
    "checkpoints/gguf/folder.py": {"symlink_to"},  # in a folder of this process
    "checkpoints/gguf/header.py": {"memmap"},  # of a file that is checked
    "checkpoints/loading.py": {"import_module", "from_pretrained", "getattr"},  # classes of the tables of tasks
    "language/per_layer.py": {"memmap", "open"},  # of a file that is checked; a file that is written
    "language/vision/images.py": {"open"},  # the user's picture
    "language/writing.py": {"ModelCard.load", "from_pretrained"},  # of a folder that is checked
    "language/text_part.py": {"getattr"},  # of the class found, only the configuration is read
    "tasks/robots.py": {"import_module", "from_pretrained", "getattr"},  # modules of a table
    "tasks/sentences.py": {"from_file"},  # of a folder that is checked
    "tasks/smolvla.py": {"import_module"},  # the module of a class that is loaded
    "tasks/timm_models.py": {"torch.load", "load_file", "create_model"},  # the user's weights, of tensors alone
}
"""What further files call, and why that is no way for a stranger's data to name a file or a module."""
LOADERS = {
    "bundles/diffusion/generation.py", "bundles/kinds/speaker_diarization.py",
    "bundles/kinds/streaming_codec.py", "bundles/loading.py", "bundles/speech/folders.py",
    "bundles/synthesis/bark.py", "checkpoints/own_extractors.py", "tasks/boxes.py", "tasks/images.py",
    "language/vision/pictures.py", "language/vision/packed.py",
}  # fmt: skip
"""The files that pass a checked folder to a library."""
PACKAGES = ("transformers", "diffusers", "package")
"""The names of modules whose attributes nothing but `named_class` may take by a name that is not in the code."""


def calls(tree: ast.AST) -> Iterator[str]:
    """The calls and imports of a file that open a file, import a module, or take an attribute of one by its name."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        last = called.rpartition(".")[2]
        if last == "getattr":
            owner, name = ast.unparse(node.args[0]), node.args[1]
            is_of_module = owner in PACKAGES or "import" in owner or "part_of" in owner
            if is_of_module and not isinstance(name, ast.Constant):
                yield "getattr"
        elif last == "load":
            yield from {called} & OPENING
        elif called in ("exec", "eval") or last in OPENING | IMPORTING | LIBRARIES:
            yield last


def test_one_module_opens_what_strangers_give() -> None:
    found = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            if made := set(calls(ast.parse(path.read_text()))):
                found[path.relative_to(ROOT).as_posix()] = made
    assert found.pop(READER) >= {"open", "safe_open", "np.load", "import_module", "getattr"}
    others = {name: made - LIBRARIES if name in LOADERS else made for name, made in found.items()}
    assert {name: made for name, made in others.items() if made} == OTHERS, f"use {READER}, or say here why not"
    assert set(found) >= LOADERS


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("getattr(transformers, name)", {"getattr"}),
        ("getattr(import_module(library), name)", {"getattr", "import_module"}),
        ("getattr(transformers, 'AutoModel')", set()),
        ("model.eval()", set()),
        ("eval(text)", {"eval"}),
        ("(folder / name).read_bytes()", {"read_bytes"}),
        ("shutil.copytree(a, b)", {"copytree"}),
        ("asset = load(path)", set()),
        ("np.load(path)", {"np.load"}),
        ("tokenizer.apply_chat_template(said)", {"apply_chat_template"}),
    ],
)
def test_calls_are_found(code: str, found: set[str]) -> None:
    assert set(calls(ast.parse(code))) == found
