"""Memory and hours of a training and of its sampling, before there are devices."""
