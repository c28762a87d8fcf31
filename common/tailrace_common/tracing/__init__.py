"""Spans of changes on their way, sent to an OpenTelemetry receiver where the settings ask for it."""
