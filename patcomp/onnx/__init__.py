"""Files of ONNX."""
