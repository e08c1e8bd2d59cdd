"""The version of aiokafka whose names this package has."""

__version__ = "0.14.0"
