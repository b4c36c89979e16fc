"""From a recipe to its artifacts: read, check, plan, walk the stages."""
