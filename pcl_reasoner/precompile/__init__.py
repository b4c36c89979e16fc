"""MindSpore's front-end compile of every rank's graph, without a device."""
