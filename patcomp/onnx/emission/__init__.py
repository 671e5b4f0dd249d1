"""A converted program as an ONNX model. It is written with `patcomp.ir.walk`; `rows` has a row for each op."""
