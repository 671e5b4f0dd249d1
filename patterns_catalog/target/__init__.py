"""Rules that rewrite a lowered program for a device; `patcomp.targets` says which device uses which."""
