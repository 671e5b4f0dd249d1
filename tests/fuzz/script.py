"""Writes a failing program down as a script of its own, which needs PyTorch and patcomp only."""

from __future__ import annotations

import inspect

from tests.fuzz import control
from tests.fuzz.judge import Outcome, calls
from tests.fuzz.program import Program, values

EXPORTS = {
    "not decomposed": "",
    "patcomp's table": "exported = exported.run_decompositions(get_decomp_table())\n",
    "PyTorch's table": "exported = exported.run_decompositions()\n",
    "saved": "torch.export.save(exported, 'program.pt2')\nexported = torch.export.load('program.pt2')\n",
}


def script(program: Program, outcome: Outcome, seed: str) -> str:
    """The source of a script that shows how a program fails."""
    dims = [f"{name} = {symbol.code(name)}" for name, symbol in program.symbols.items()]
    shapes = ", ".join(
        "{" + ", ".join(f"{axis}: {size}" for axis, size in enumerate(given.shape) if isinstance(size, str)) + "}"
        for given in program.inputs
    )
    options = f", dynamic_shapes=({shapes},)" if program.symbols else ""
    model_source = program.source()
    helpers = [
        values,
        *(f for f in (control.cond, control.while_loop, control.scan) if f"{f.__name__}(" in model_source),
    ]
    head = f"{outcome.kind}: {outcome.message}".replace("\\", "/").replace('"""', "'''")
    lines = [
        f'"""{head}\n\nFound by the fuzzer, program {seed}.\n"""',
        "",
        "from __future__ import annotations",
        "",
        "from collections.abc import Callable",
        "from typing import Any",
        "",
        "import torch",
        "import torch.nn.functional as F",
        "from torch import nn",
        "from torch._higher_order_ops import scan as torch_scan",
        "from torch._higher_order_ops import while_loop as torch_while_loop",
        "from torch.export import Dim",
        "",
        "from patcomp import TorchConverter, get_decomp_table",
        "",
        "",
        *(f"{inspect.getsource(helper)}\n" for helper in helpers),
        f"{model_source}\n",
        "torch.set_grad_enabled(False)",
        "calls = [",
        *(f"    {_arguments(program, sizes, call)}," for sizes, call in calls(program)),
        "]",
        *dims,
        f"exported = torch.export.export(Model().eval(), calls[0]{options})",
        f"{EXPORTS[program.form]}program = TorchConverter().add_exported_program(exported).to_coreai()",
        "model, state = Model().eval(), program.new_state()",
        "for arguments in calls:",
        "    print('model  ', model(*(argument.clone() for argument in arguments)))",
        "    print('program', program.run(*arguments, state=state))",
        "    print(program.verify_against(Model().eval(), arguments))",
    ]
    return "\n".join(lines) + "\n"


def _arguments(program: Program, sizes: dict[str, int], call: int) -> str:
    return f"({', '.join(given.code(sizes, call) for given in program.inputs)},)"
