"""Training: one loop for every recipe, in folders that survive being killed."""
