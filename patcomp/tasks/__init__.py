"""Models of a folder by their task: images, texts, two towers, speech. `docs/model-folders.md` explains it."""

import patcomp.torchvision  # noqa: F401 (the first, because transformers imports torchvision)
from patcomp.tasks.folder_to_program import convert_folder
from patcomp.tasks.table import TASKS, Task

__all__ = ["TASKS", "Task", "convert_folder"]
