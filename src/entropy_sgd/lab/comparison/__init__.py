"""Comparing methods: several runs at equal budgets, and what their summaries say together.

comparison.py   the runs, resumable
table.py        a row for each recipe
seeds.py        mean, standard deviation and paired differences over seeds
"""
