"""Runs held against one another, paired by problem and sample."""
