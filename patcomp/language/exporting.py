"""The export of models of transformers, whose failures become one message."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram, export

from patcomp.errors import PatcompError, reason_of
from patcomp.language.errors import LanguageModelError


def exported_module(
    module: nn.Module, arguments: tuple[Any, ...], name: str, dynamic_shapes: Any = None
) -> ExportedProgram:
    """Export a module with `torch.export`.

    Args:
        module: what is exported.
        arguments: example arguments.
        name: of the model, for messages.
        dynamic_shapes: the open sizes, as `torch.export` takes them.

    Raises:
        LanguageModelError: the export fails.
    """
    try:
        with torch.no_grad():
            return export(module, arguments, dynamic_shapes=dynamic_shapes, strict=False)
    except PatcompError:
        raise
    except Exception as error:  # of the model's own code, which the export runs
        raise LanguageModelError(f"torch.export cannot export {name}: {reason_of(error)}") from error
