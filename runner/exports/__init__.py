"""A run in the formats of others. The run itself is left as it is."""
