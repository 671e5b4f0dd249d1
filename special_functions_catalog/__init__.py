"""Decompositions of functions that few models have: Fourier transforms, factors of matrices, orthogonal polynomials,
error, gamma, Bessel and Airy functions. Installed with patcomp, and found as any package's catalog is."""
