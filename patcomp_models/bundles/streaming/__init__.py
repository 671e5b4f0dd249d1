"""Models that read a recording in chunks: what they keep between the calls are states."""
