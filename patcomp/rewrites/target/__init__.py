"""Target: rewrite a program for a device, by the rules and steps that the target names."""

from patcomp.rewrites.target.stage import STEPS, retarget

__all__ = ["STEPS", "retarget"]
