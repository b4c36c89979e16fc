"""Draws responses from a small Qwen2 model in this process, on a CPU and without a server."""
