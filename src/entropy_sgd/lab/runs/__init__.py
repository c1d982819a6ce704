"""Runs on disk. Nothing here trains or measures.

folder.py        the folder of a run: what it holds, and who may write into it
checkpoint.py    checkpoints that survive a crash at any moment
trajectory.py    weights along a run
environment.py   where a run is made
records.py       JSON files
reading.py       runs read back, for reports and measurements
"""
