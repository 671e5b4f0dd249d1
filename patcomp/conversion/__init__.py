"""From a model and its example inputs to a program that is checked and saved: `patcomp.convert`, and the steps that the
command takes, too."""
