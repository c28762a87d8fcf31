"""Builds the parts of an agent, and of commands that do a part of its work, from the settings."""
