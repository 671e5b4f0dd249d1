"""What a program looks like from outside: inputs, outputs and states, their names, dynamic dimensions and guards."""
