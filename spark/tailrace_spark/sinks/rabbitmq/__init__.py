"""The RabbitMQ sink: changes as messages, confirmed by the broker."""
