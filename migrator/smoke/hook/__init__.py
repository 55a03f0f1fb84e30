"""What runs inside the user's processes: it records, and where asked makes CUDA code run on the CPU.

Loaded by location from `site/sitecustomize.py`, so nothing here imports the rest of the migrator.
"""
