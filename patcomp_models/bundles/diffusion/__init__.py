"""Pipelines of diffusers: their models as modules with the inputs and outputs that Apple's Swift package takes."""
