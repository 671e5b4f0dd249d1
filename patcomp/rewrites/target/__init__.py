"""Target: rewrite a program for a device, by the rules and steps that the target names."""

from patcomp.rewrites.target.stage import TARGET_STEPS, left_wide, retarget, sizes_of_data, usable_target

__all__ = ["TARGET_STEPS", "left_wide", "retarget", "sizes_of_data", "usable_target"]
