"""Random programs against a live node, through agent, stream and sink: then the sink is what SELECT answers."""
