"""What the stream costs, stage by stage, and how long a change takes from Kafka to the sink's commit."""
