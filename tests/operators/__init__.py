"""PyTorch's own operator samples (OpInfo), converted and compared with eager PyTorch."""
