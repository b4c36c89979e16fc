"""From a recipe to its artifacts: read it, check it, plan its stages and run them."""
