"""The pages of the documentation, their language, and the public names."""
