"""Where a program's numbers depart from the model's: by module, stage and rule."""
