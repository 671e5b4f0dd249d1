"""The composite declarations of a module."""

from __future__ import annotations

import re

from patcomp.ir.module import IRModule


def declarations(module: IRModule) -> list[str]:
    """The text of every composite declaration of a module."""
    return re.findall(r"#coreai\.composite_declaration<.*?>(?=[,}])", module.text())
