"""Flat minima for PyTorch."""
