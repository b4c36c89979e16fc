"""The base of all other packages: errors, files, artifacts, stages, launch file."""
