"""A table of the source held against what a sink has of it: `tailrace compare`.

`rows` and `buckets` compute. `source` reads the table by tasks, and what a sink has. `run` compares them, and
`repair` writes what differs.
"""
