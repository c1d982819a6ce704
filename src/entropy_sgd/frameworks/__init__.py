"""Training loops of others around the optimizers: one module a framework, imported when asked for.

The modules need the `frameworks` extra; `ddp` needs torch alone.
"""
