"""The last version and this one on the same data, one after the other and beside each other."""
