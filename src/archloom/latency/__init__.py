"""Measure and model how long networks take."""
