"""Writes the picture of a terminal that README.md shows: `python docs/pictures.py`.

The commands run; the picture has what they print.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 80
MODEL = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.up, self.down = nn.RMSNorm(64, eps=1e-6), nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def block():
    return nn.Sequential(Block(), Block()).eval(), (torch.rand(1, 8, 64),)
"""
COMMANDS = (
    "patcomp convert net.py:block --verify",
    "patcomp explain net.py:block gelu",
    "patcomp compress net.py:block --config w4_block32 --check inputs",
)


def main() -> None:
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "net.py").write_text(MODEL)
        for command in COMMANDS:
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            words = [sys.executable, "-m", *shlex.split(command)]
            settings = {**os.environ, "COLUMNS": str(WIDTH), "OMP_NUM_THREADS": "1"}
            done = subprocess.run(words, cwd=folder, env=settings, text=True, stdout=-1, stderr=subprocess.STDOUT)
            console.print(Text(done.stdout.strip() + "\n"), soft_wrap=True)
    picture = console.export_svg(title="patcomp", clear=False)
    picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)  # which would be loaded from another host
    Path(__file__).with_name("images").joinpath("terminal.svg").write_text(picture.replace("Fira Code", "monospace"))


if __name__ == "__main__":
    main()
