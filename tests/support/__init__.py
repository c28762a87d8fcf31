"""What tests share: the outside world in memory, and time that passes only by waiting."""
