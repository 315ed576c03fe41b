"""Compare strategies over seeds."""
