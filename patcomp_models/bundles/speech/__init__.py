"""Models of speech: their parts as modules, their files, and the text of a recording by the parts of a bundle."""
