"""GPU code: Triton kernels, CUDA graphs, fused layers and memory."""
