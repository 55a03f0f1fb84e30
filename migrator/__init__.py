"""npu-migrate: source-to-source migration of PyTorch code from CUDA to Ascend NPUs."""

__version__ = "0.1.0"
