"""Tests of the topology package."""
