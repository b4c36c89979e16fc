"""The sampler inside this process: a small Qwen2 on the CPU, for a laptop."""
