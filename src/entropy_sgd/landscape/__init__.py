"""Measurements of flatness."""
