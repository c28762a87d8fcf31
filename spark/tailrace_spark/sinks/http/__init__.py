"""The HTTP sink: changes as JSON to an endpoint."""
