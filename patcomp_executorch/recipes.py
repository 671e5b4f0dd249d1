"""Recipes of `executorch.export` that lower a model with patcomp.

from executorch.export import ExportRecipe, export
from patcomp_executorch.recipes import PatcompRecipe

session = export(model, [inputs], ExportRecipe.get_recipe(PatcompRecipe.FP16))
session.save_to_pte("model.pte")
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from executorch.backends.apple.coreai import get_default_compile_config, get_default_passes
from executorch.export import BackendRecipeProvider, ExportRecipe, LoweringRecipe, RecipeType, recipe_registry
from torch.export import ExportedProgram

from patcomp import PatcompError
from patcomp.pytorch import pytree
from patcomp_executorch.partitioner import CoreAIPartitioner


class PatcompRecipe(RecipeType):
    """How a model is lowered: as it is, or in float16, inputs and outputs too."""

    FP32 = "patcomp_fp32"
    FP16 = "patcomp_fp16"

    @classmethod
    def get_backend_name(cls) -> str:
        return "patcomp"


class PatcompRecipes(BackendRecipeProvider):
    """Gives `executorch.export` the recipes; options of a recipe are the arguments of `CoreAIPartitioner`."""

    @property
    def backend_name(self) -> str:
        return PatcompRecipe.get_backend_name()

    def get_supported_recipes(self) -> Sequence[RecipeType]:
        return list(PatcompRecipe)

    def create_recipe(self, recipe_type: RecipeType, **options: Any) -> ExportRecipe | None:
        if recipe_type not in self.get_supported_recipes():
            return None
        return ExportRecipe(
            name=recipe_type.value,
            aten_transform_passes=[_in_half] if recipe_type is PatcompRecipe.FP16 else None,
            lowering_recipe=LoweringRecipe(
                partitioners=[CoreAIPartitioner(**options)],
                edge_transform_passes=[lambda method, program: get_default_passes()],
                edge_compile_config=get_default_compile_config(),
            ),
        )


def _in_half(method: str, exported: ExportedProgram) -> ExportedProgram:
    """A program in float16, exported from the module of another one.

    Raises:
        PatcompError: the program has dynamic sizes, or no example inputs.
    """
    if exported.range_constraints or exported.example_inputs is None:
        lacks = "dynamic sizes" if exported.range_constraints else "no example inputs"
        raise PatcompError(f"{method} has {lacks}; export model.half() and lower it by the recipe PatcompRecipe.FP32")
    args, kwargs = pytree.tree_map(_half, exported.example_inputs)
    return torch.export.export(copy.deepcopy(exported.module()).half(), args, kwargs)


def _half(value: Any) -> Any:
    return value.half() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


recipe_registry.register_backend_recipe_provider(PatcompRecipes())
