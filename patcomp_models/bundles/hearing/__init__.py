"""Language models that hear: an encoder of sound, whose features take the places of tokens."""
