"""The FX graph of an exported program: what a node is, its element types and sizes, and its place in the model."""
