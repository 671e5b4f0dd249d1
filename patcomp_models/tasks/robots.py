"""Policies of robots that lerobot saved: from observations to a chunk of actions, in the numbers of the model.

The inputs are the observations of the folder, `observation.images.top` as `observation_images_top`. What lerobot's
processors do around a policy, such as the normalisation of observations and actions, is the caller's.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from patcomp.errors import PatcompError, reason_of
from patcomp_models.checkpoints.agreement import STRICT, Allowed
from patcomp_models.checkpoints.loading import DTYPES
from patcomp_models.tasks import policies
from patcomp_models.tasks.entries import Entry
from patcomp_models.tasks.replacing import replaced
from patcomp_models.tasks.smolvla import smolvla

_POLICIES = {
    "act": ("ACTPolicy", policies.act),
    "diffusion": ("DiffusionPolicy", policies.diffusion),
    "smolvla": ("SmolVLAPolicy", smolvla),
}
"""The class, and what makes the functions of one."""
_OTHERS = ("pi0", "pi05", "pi0_fast", "vqbet", "tdmpc", "groot", "xvla", "wall_x", "sac")
POLICY_KINDS = (*_POLICIES, *_OTHERS)
"""What `type` of a `config.json` of lerobot says."""


def policy_functions(folder: Path, config: Mapping[str, Any], dtype: str, allowed: Allowed) -> list[Entry]:
    """The functions of the policy of a folder.

    Args:
        folder: of `save_pretrained` of lerobot.
        config: its `config.json`.
        dtype: of the weights.
        allowed: how the weights may differ from the policy's, which must be in no way.

    Raises:
        PatcompError: it is another policy, lerobot cannot be used, or it cannot load the policy.
    """
    kind = config["type"]
    if allowed != STRICT:
        raise PatcompError("the weights of a policy of lerobot must all be there; leave allow_missing= and "
                           "allow_unexpected= out")  # fmt: skip
    if kind not in _POLICIES:
        raise PatcompError(
            f"{str(folder)!r} holds the policy {kind!r} of lerobot, and patcomp knows {', '.join(_POLICIES)}; "
            "export it by FILE.py:FUNCTION, a function that returns a module and its inputs"
        )
    name, functions = _POLICIES[kind]
    try:
        policy = getattr(part_of_lerobot(kind, "modeling"), name)
    except Exception as error:  # the package imports much, which may not fit the installed versions
        raise PatcompError(
            f"{str(folder)!r} holds a policy of lerobot, which cannot be used: {reason_of(error)}; pip install lerobot"
        ) from error
    try:
        given = _settings(folder, config)
        loaded = policy.from_pretrained(folder, local_files_only=True, strict=True, **given).to(DTYPES[dtype]).eval()
    except Exception as error:  # files can make lerobot raise anything
        raise PatcompError(f"lerobot cannot load {str(folder)!r}: {reason_of(error)}") from error
    try:
        return functions(loaded, DTYPES[dtype])
    except PatcompError as error:
        raise PatcompError(f"{str(folder)!r} holds the policy {kind!r}: {error}") from error
    except Exception as error:  # the policy's own code runs on examples and may raise any exception
        raise PatcompError(
            f"{str(folder)!r} holds the policy {kind!r}, which does not run on its observations: {reason_of(error)}"
        ) from error


def _settings(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The option `config` of `from_pretrained`, if the folder itself has the model that `vlm_model_name` names: lerobot
    would look for it where the process is."""
    named = config.get("vlm_model_name")
    if not isinstance(named, str) or not named or not (folder / named).is_dir():
        return {}
    settings = import_module("lerobot.configs.policies").PreTrainedConfig.from_pretrained(folder, local_files_only=True)
    settings.vlm_model_name = str(folder / named)
    return {"config": settings}


def part_of_lerobot(kind: str, part: str) -> ModuleType:
    """The module with a policy or its configuration.

    The package `lerobot.policies` imports all policies, and some of these may not fit the installed transformers: GR00T
    of lerobot 0.4.4 does not fit transformers 5. Then the module is imported without the others.

    Raises:
        Exception: lerobot is not installed, or the module does not fit the installed versions.
    """
    name, package = f"lerobot.policies.{kind}.{part}_{kind}", "lerobot.policies"
    try:
        return import_module(name)
    except Exception:
        if package in sys.modules:  # the package is not what failed
            raise
        bare = ModuleType(package)
        bare.__path__ = [str(Path(place) / "policies") for place in import_module("lerobot").__path__]
        with replaced(sys.modules, **{package: bare}):
            return import_module(name)
