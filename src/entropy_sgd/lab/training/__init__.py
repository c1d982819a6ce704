"""The training itself.

trainer.py        a run, phase by phase
evaluation.py     the weights to judge, with batch statistics of their own
log.py            metrics.jsonl and TensorBoard
gradient.py       the closure of a step
processes.py      several processes that train one network together
acceleration.py   threads and torch.compile
display.py        what a run shows
stop.py           Ctrl-C and SIGTERM
"""
