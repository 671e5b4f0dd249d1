"""Importing this loads PyTorch and patcomp, and what they load at the first conversion."""

import torch

torch.set_num_threads(1)  # threads do not survive a fork

from patcomp import TorchConverter  # noqa: E402

_MODEL = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()).eval()
TorchConverter().add_pytorch_module(
    _MODEL, export_fn=lambda model: torch.export.export(model, (torch.zeros(1, 2),)).run_decompositions()
).to_coreai()
