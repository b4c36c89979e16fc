"""Training on many hosts: start it, monitor it, restart it after a worker or a host is lost."""
