"""Language models. They need transformers, which imports torchvision, which may be of another build than PyTorch."""

from patcomp.torchvision import declare_operators

declare_operators()
