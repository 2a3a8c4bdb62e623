"""Measurements, each as a ratio to a baseline taken in the same run: `python -m benchmarks [NAME]`."""
