"""Measurements of flatness."""

from .hessian import hessian_eigenvalues

__all__ = ["hessian_eigenvalues"]
