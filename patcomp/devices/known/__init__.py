"""The tables of facts, a subject a file; each file has a tuple `FACTS`."""
