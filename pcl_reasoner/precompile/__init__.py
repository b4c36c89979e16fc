"""Compiles the training graph of a rank with MindSpore's front end, without a device."""
