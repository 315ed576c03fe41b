"""Find an architecture."""
