"""The FX graph of an exported program: nodes, element types, sizes and places in the model."""
