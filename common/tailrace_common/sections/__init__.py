"""Sections of the settings file, and what sections have in common. A sink's section is in its store's package."""
