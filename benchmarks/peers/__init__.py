"""Others that do the same, run beside us."""
