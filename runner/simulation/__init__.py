"""The run's own scheduler and pool under a simulated clock, with engines that follow a law, not a GPU."""
