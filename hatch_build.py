"""Makes the type stubs of `patcomp.authoring` before a wheel, an sdist or an editable install is built."""

import subprocess
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Stubs(BuildHookInterface):
    """Runs the generator on the tables and the catalog of this folder; it needs xDSL, and no PyTorch."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        subprocess.run([sys.executable, "-B", "-m", "patcomp_lab.commands.stubs"], cwd=self.root, check=True)
