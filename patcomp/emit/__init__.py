"""Emission: programs as `.aimodel` assets and back, written in Python (`stored`) or by coreai-core (`toolchain`)."""
