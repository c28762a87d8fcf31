"""What a subscription is and what may become of it, as values. No database, clock or network."""
