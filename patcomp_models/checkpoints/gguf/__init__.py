"""GGUF, the files of llama.cpp: one file with the weights, the configuration and the tokenizer of a model."""
