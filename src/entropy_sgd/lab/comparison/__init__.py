"""Comparing methods: several runs at equal budgets, and the statistics of their results.

comparison.py   the runs, resumable
table.py        a row for each recipe
seeds.py        mean, standard deviation and paired differences over seeds
"""
