"""What export recorded wrongly at small sizes: shapes at the sizes 0 and 1, and lengths of slices."""
