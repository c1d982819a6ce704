"""Integrations with training frameworks: one module for each, imported on demand.

The modules need the `frameworks` extra; `ddp` needs torch alone.
"""
