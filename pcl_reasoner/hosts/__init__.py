"""Training on many hosts: start it, watch it, start it again after a loss."""
