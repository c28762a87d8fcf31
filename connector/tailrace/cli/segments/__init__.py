"""Commands that read segment files, and need no service."""
