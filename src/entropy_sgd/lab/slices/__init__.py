"""Slices of the loss around the weights of finished runs, and their pictures.

how.py       the options of a slice
measure.py   slices as records for JSON files
draw.py      the pictures, from such records alone
write.py     what `entropy-sgd landscape` does: files, pictures, a line on the terminal for each
"""
