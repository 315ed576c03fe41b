"""How a run executes: the machine, the loop, checkpoints, the run folder, executors."""
