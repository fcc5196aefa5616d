"""Holding this implementation against recorded behaviour of the original harness."""
