"""Recount: reproduces a published agentic score."""

__version__ = "0.1.0"
