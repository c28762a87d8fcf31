"""Segment files of a commit log: listed, opened, read, checked and printed, for the agent and for commands."""
