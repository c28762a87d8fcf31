"""Sinks: a package for each store behind one protocol; `registry` lists their types."""
