"""Search and retrain by one recipe."""
