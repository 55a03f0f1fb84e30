"""Runs converted code, on an NPU or on the emulated one, and compares it with the original.

`command` is the command line, `session` the order of events. What runs inside the user's processes is in
`hook`; only that, and `tensors` in a process of its own, import torch.
"""
