"""Estimates the memory and the hours of training and sampling, without any device."""
