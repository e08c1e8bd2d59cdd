"""The version of kafka-python whose names and meanings this package has."""

__version__ = "3.0.12"
