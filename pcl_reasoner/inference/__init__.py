"""Starts model servers, and sends requests to them."""
