"""Diffusion language models: denoisers as functions of assets, and the loops of hosts around them."""
