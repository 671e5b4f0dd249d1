"""The toolchain coreai-core: programs in the form that it takes, its runtime, and both in a child process."""
