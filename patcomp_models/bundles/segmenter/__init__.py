"""Segmenters: models of points and of texts, in the forms that Apple's Swift package runs."""
