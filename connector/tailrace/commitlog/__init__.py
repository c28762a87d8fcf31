"""Bytes of the commit log to mutations: descriptor, sections, frames, partition updates. No clock, file or thread."""
