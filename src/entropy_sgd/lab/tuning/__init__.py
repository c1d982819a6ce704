"""Tuning: the same number of trials and gradients for every method, judged on validation data.

space.py         what a method's file says may change, as Optuna draws it
tuning.py        the trials, resumable
sensitivity.py   the range of learning rates that work
edges.py         best settings at the edge of what was searched
show.py          the tables and the figure
"""
