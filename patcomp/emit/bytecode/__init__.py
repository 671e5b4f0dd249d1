"""The container of an asset's program: MLIR bytecode 6 with the private dialect `aicode`, as plain Python objects.

This room needs neither PyTorch nor xDSL, so that other tools can look into an asset, too. `read_program` reads a file,
`ProgramWriter` writes one; reading and writing again gives the same bytes for every asset that coreai-core 1.0.0b2 and
b3 wrote in our tests.
"""

from patcomp.emit.bytecode.encoding import AssetFormatError
from patcomp.emit.bytecode.program import Block, Op, Region, StoredBytes, StoredEntry, StoredProgram, StoredValue
from patcomp.emit.bytecode.reading import read_program
from patcomp.emit.bytecode.writing import ProgramWriter

__all__ = [
    "AssetFormatError",
    "Block",
    "Op",
    "ProgramWriter",
    "Region",
    "StoredBytes",
    "StoredEntry",
    "StoredProgram",
    "StoredValue",
    "read_program",
]
