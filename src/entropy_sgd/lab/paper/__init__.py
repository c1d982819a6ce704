"""The paper's table and figures beside this project's runs.

numbers.py    what the paper prints, and where
entry.py      what is declared of a run
rows.py       what is run, in order
kept.py       one small JSON file for each run that has ended
verdicts.py   a result against the paper's, in standard errors
standing.py   every row with what is kept of it
table.py      the same as text
show.py       the same on a terminal
figures.py    Fig. 1 to 6
page.py       one HTML page, and a page with pictures for the documentation
running.py    computes what is missing

Nothing here knows how a run is trained: it starts jobs and reads the folders they leave.
"""
