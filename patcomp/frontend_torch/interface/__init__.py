"""The interface of a program: inputs, outputs and states, their names, dynamic dimensions and guards."""
