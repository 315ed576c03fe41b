"""What a run found, for people to read: drawings of cells, plots, and one self-contained page."""
