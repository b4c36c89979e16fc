"""Where the parts of a data stage run: in its own process, or as tasks on Ray."""
