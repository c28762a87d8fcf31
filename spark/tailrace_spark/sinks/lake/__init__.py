"""Sinks of lakes: a row for each change, or rows as SELECT reads them, over any store of tables."""
