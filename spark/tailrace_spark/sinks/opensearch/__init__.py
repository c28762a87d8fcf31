"""The OpenSearch sink: documents that read as SELECT reads the source, and their state beside them."""
