"""Training as the runner sees it: settings, the MindFormers YAML, the process, its results."""
