"""Train an architecture from scratch."""
