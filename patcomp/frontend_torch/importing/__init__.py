"""Import: the FX graph of an exported program as a `coreai.graph` of `aten` ops."""
