"""The measurements of Section 5.1 on finished runs, their files, and the figures and tables drawn from these.

how.py            the options of a measurement
trained.py        a run's folder as network, loss and training samples
condense.py       a spectrum of any size as a few thousand numbers
measure.py        spectra and local entropies as records for JSON files
show.py           showing them on the terminal
measurements.py   reading them back
figures.py        the paper's Fig. 1 and Fig. 3 from such files
flatness.py       the table by recipe from such files
"""
