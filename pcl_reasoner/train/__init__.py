"""The runner's side of training: settings, the MindFormers YAML, the process and its results."""
