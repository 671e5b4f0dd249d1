"""What users register for ops of their own: lowerings and Metal kernels."""
