"""The laboratory: data, networks, recipes, training, reports."""
