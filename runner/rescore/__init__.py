"""Scoring a run again, from its journal and without the model, by whichever scorer."""
