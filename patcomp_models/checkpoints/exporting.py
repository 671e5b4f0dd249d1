"""The export of models of transformers, which are not trained further: without gradients."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from patcomp import export
from patcomp.errors import ConversionWarning, ExportError, reason_of
from patcomp_models.errors import LanguageModelError


@contextmanager
def sizes_kept_by_the_caller() -> Iterator[None]:
    """Do not warn of sizes for which a program is not right, because its caller does not use them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the model was exported for (some )?sizes", ConversionWarning)
        yield


def exported_module(
    module: nn.Module,
    arguments: tuple[Any, ...],
    name: str,
    dynamic_shapes: Any = None,
    *,
    draft: bool = False,
    assume_branch: bool = False,
    has_sums_of_sizes: bool = False,
) -> ExportedProgram:
    """Export a module with `patcomp.export`.

    Args:
        module: what is exported.
        arguments: example arguments.
        name: of the model, for messages.
        dynamic_shapes: the dynamic sizes, as `torch.export` takes them.
        draft, assume_branch: as for `patcomp.export`.
        has_sums_of_sizes: whether tensors have sizes such as 512 + q. `torch.export` does not see that 8 (512 + q) is
            less than 16 (512 + q), and refuses an open q, unless such conditions become assertions of the program.

    Raises:
        LanguageModelError: the export fails.
    """
    with torch.no_grad():
        try:
            if has_sums_of_sizes:
                return torch.export.export(
                    module, arguments, dynamic_shapes=dynamic_shapes, prefer_deferred_runtime_asserts_over_guards=True
                )
            return export(module, arguments, dynamic_shapes=dynamic_shapes, draft=draft, assume_branch=assume_branch)
        except ExportError as error:
            raise LanguageModelError(f"{name} cannot be exported: {error.problem}") from error
        except LanguageModelError:
            raise
        except Exception as error:  # the code of a model can raise anything
            raise LanguageModelError(f"{name} cannot be exported: {reason_of(error)}") from error
