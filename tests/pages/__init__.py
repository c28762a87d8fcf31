"""Pages of docs/ as programs: their blocks are run, or held against the commands and settings that they name."""
