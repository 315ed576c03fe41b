"""What every part builds on: errors, atomic files, the registry, settings, events; no torch."""
