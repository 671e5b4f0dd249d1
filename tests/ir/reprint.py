"""Prints MLIR texts as the real toolchain prints them; run as a script, because native code can abort.

Reads a JSON list of texts from standard input and writes the list of what became of them.
"""

from __future__ import annotations

import json
import subprocess
import sys


def reprint(texts: list[str]) -> list[str]:
    """Each text parsed and printed by the toolchain, in a child process; `error: ...` where it is refused."""
    done = subprocess.run([sys.executable, __file__], input=json.dumps(texts), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def main() -> None:
    import coreai.authoring  # noqa: F401  (must come before the compiler's modules)
    from coreai._compiler import ir
    from coreai._compiler.context import Context

    context = Context()
    answers = []
    for text in json.load(sys.stdin):
        with context._mlir_context:
            try:
                answers.append(str(ir.Module.parse(text)))
            except Exception as error:
                answers.append(f"error: {error}")
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
