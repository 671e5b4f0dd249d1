"""Writes the picture of a terminal that README.md shows: `python docs/pictures.py`.

The commands run; the picture has what they print.
"""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
from contextlib import suppress
from io import StringIO
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


def printed(command: list[str], folder: str) -> str:
    """What a command leaves on a terminal: without colours, and without what it wiped away."""
    settings = {**os.environ, "COLUMNS": str(WIDTH), "LINES": "60", "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    ours, its = pty.openpty()
    process = subprocess.Popen(command, cwd=folder, env=settings, stdin=its, stdout=its, stderr=its)
    os.close(its)
    text = b""
    with suppress(OSError):  # which is how Linux says that the other end is closed
        while more := os.read(ours, 4096):
            text += more
    process.wait()
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", lambda code: "\r" if code[0].endswith("K") else "", text.decode())
    left = (line.rstrip("\r").rpartition("\r")[2] for line in lines.split("\n"))
    return "\n".join(line for line in left if not "\u2800" <= line[:1] <= "\u28ff").strip()  # the spinner's dots


def main() -> None:
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "net.py").write_text(MODEL)
        for command in COMMANDS:
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            console.print(Text(printed([sys.executable, "-m", *shlex.split(command)], folder) + "\n"))
    picture = console.export_svg(title="patcomp", clear=False)
    picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)  # which would be loaded from another host
    Path(__file__).with_name("images").joinpath("terminal.svg").write_text(picture.replace("Fira Code", "monospace"))


if __name__ == "__main__":
    main()
