"""The table of ops: what each op of Core AI is in ONNX. An op without a row is refused by name."""
