"""The checks of `tailrace check`, one module for each thing that is looked at."""
