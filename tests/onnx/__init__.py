"""Tests of the ONNX emitter and of onnxruntime as an engine."""
