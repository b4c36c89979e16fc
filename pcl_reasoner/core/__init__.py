"""What every room stands on: errors, files, artifacts, stages, the launch file, the data engine."""
