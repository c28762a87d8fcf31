"""One module a version, in the order of their `down_revision`."""
