"""Compiles a rank's graph with MindSpore's front end, without a device."""
