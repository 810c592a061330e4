"""Convolution kernels for narrow layers on a GPU, used by `runtime.execution` only; PyTorch's own elsewhere."""
