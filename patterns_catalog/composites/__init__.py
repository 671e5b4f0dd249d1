"""The composites that rules of several stages know: their bodies, and what the bodies share."""
