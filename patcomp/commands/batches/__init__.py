"""Many conversions at once: a file of models, what runs them, and their results."""
