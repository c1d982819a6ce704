"""Runs on disk. Nothing here trains or measures.

folder.py        the folder of a run and what it holds
claim.py         the right to write into a folder, and what becomes of the run that was there
lock.py          who holds a folder
checkpoint.py    checkpoints that survive a crash at any moment
trajectory.py    weights along a run
environment.py   where a run is made
records.py       JSON files
reading.py       runs read back, for reports and measurements
"""
