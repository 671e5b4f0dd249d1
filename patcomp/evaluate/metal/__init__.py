"""The bodies of Metal kernels, run on the CPU by a C++ compiler, and compared with their reference functions."""
