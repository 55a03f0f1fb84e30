"""Stands in for the part of fairscale that facebookresearch/llama uses, for one process."""
