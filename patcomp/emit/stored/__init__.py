"""`.aimodel` assets without native code: read and written in Python."""
