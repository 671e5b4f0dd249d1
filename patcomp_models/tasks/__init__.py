"""Models of a folder by their task: images, texts, two towers, speech; and detectors and depth given as objects.
`docs/model-folders.md` and `docs/objects.md` explain them."""

import patcomp.torchvision  # noqa: F401 (the first, because transformers imports torchvision)
from patcomp_models.tasks.depth import convert_depth
from patcomp_models.tasks.detectors import convert_detector
from patcomp_models.tasks.folder_to_program import convert_folder
from patcomp_models.tasks.preprocessing import Preprocessing
from patcomp_models.tasks.suppression import Suppression
from patcomp_models.tasks.table import TASKS, Task

__all__ = ["TASKS", "Preprocessing", "Suppression", "Task", "convert_depth", "convert_detector", "convert_folder"]
