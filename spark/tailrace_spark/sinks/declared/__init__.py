"""One module for each type of sink: what it says of itself. None imports its vendor's package before it is opened."""
