"""What the kernels do, in plain Python."""
