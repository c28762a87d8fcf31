"""The commit log's bytes to mutations: descriptor, sections, frames, partition updates. Pure: no clock, file or thread."""
