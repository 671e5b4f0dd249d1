"""What commands look like: tables of 80 columns, messages beside a spinner, lines of the runtime, Ctrl-C."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from patcomp.commands import common, progress, tables
from patcomp.compression.report import CompressionReport, WeightReport
from patcomp.evaluate.verification import OutputError, Verification


def lines_of(shown: object, width: int = 80, terminal: bool = True) -> list[str]:
    """The lines that are printed, without colours."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=terminal, color_system=None)
    tables.show(shown, console)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def verification(name: str) -> Verification:
    return Verification((OutputError(name, "evaluator", 1e-6, 1e-6, 120.0, 1e-4, "f32"),) * 2)


@pytest.mark.parametrize(
    "name", ["logits", "a_hidden_state_of_the_encoder", "model.layers.0.attention.output.dense.bias"]
)
def test_a_verification_fits_a_terminal(name: str) -> None:
    lines = lines_of(verification(name))
    assert max(map(cell_len, lines)) <= 80
    assert sum("evaluator" in line and "passed" in line for line in lines) == 2
    wide = lines_of(verification(name), terminal=False)
    assert sum(name in line for line in wide) == 2
    assert "median rel" in "\n".join(wide)


def test_names_lose_their_middle_and_texts_are_folded() -> None:
    table = Table("finding", "rule", "why")
    table.add_row("overlap", "a_rule", "it matches all that another rule matches, which comes before it in the catalog")
    lines = lines_of(table, 60)
    assert max(map(cell_len, lines)) <= 60
    assert " ".join(line[17:].strip() for line in lines[2:]).startswith("it matches all that another rule matches,")
    names = Table("weight", "bytes")
    names.add_row("model.vit.encoder.layers.0.attention.q_proj.weight", "4,096")
    assert lines_of(names, 40)[-1] == "model.vit.encode…on.q_proj.weight  4,096"


def test_a_report_of_compression_keeps_its_lines() -> None:
    weight = WeightReport("linear.weight", ("matmul",), (64, 64), "w8", 16384, 4352, 52.9)
    report = CompressionReport((weight,), {"relu": 58.5})
    assert lines_of(report)[-1] == "output relu: 58.5 dB"


def test_messages_go_above_a_spinner(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr(progress, "Console", lambda stderr: console)
    with progress.working("exporting net"):
        common.say("note: something")
    assert "note: something\n" in stream.getvalue()
    assert common.error_console() is not console


def test_a_bar_counts_things(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(progress, "_PATIENCE", 0)
    console = Console(file=stream, width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr(progress, "Console", lambda stderr: console)
    with progress.working("testing rule relu", counts=True) as advance:
        advance(3, 12)
        time.sleep(0.3)
    assert "testing rule relu" in stream.getvalue()
    assert "3 of 12" in stream.getvalue()


RUNTIME = """
import logging, os, sys
from patcomp.emit.toolchain.runtime_lines import kept_apart, own_standard_error

logging.basicConfig(format="%(name)s: %(message)s")
with own_standard_error():
    logging.getLogger().handlers[0].setStream(sys.stderr)
    if "debug" in sys.argv:
        logging.getLogger("patcomp").setLevel("DEBUG")
    with kept_apart():
        os.write(2, b"ODIE [default]: Loading function 'main'\\n")
        print("from Python", file=sys.stderr)
    with kept_apart():
        os.write(2, b"a warning of the system\\n")
    try:
        with kept_apart():
            os.write(2, b"ODIE [default]: a kernel is missing\\n")
            raise RuntimeError
    except RuntimeError:
        print("refused", file=sys.stderr)
os.write(2, b"afterwards\\n")
"""


def run(code: str, *arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=120, check=False)


@pytest.mark.parametrize("debug", [False, True])
def test_lines_of_the_runtime(debug: bool) -> None:
    usual = ["patcomp.runtime: ODIE [default]: Loading function 'main'"] * debug
    rest = ["a warning of the system", "ODIE [default]: a kernel is missing"]
    logged = [f"patcomp.runtime: {line}" for line in rest]
    assert run(RUNTIME, *["debug"] * debug).stderr.splitlines() == [
        "from Python", *usual, *logged, "refused", "afterwards",
    ]  # fmt: skip


INTERRUPTED = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore the signal
sys.meta_path.insert(0, Interrupts())
sys.argv = ["patcomp", "convert", "nets.py:net"]
from patcomp.__main__ import main
main()
"""


def test_interrupted_while_importing(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text("import torch\n")
    done = run(INTERRUPTED, folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
