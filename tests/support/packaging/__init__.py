"""Wheel and sdist, built and installed."""
