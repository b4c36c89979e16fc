"""Estimates the memory and the hours of a training, without any device."""
