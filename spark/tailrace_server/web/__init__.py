"""The page of a server: subscriptions for people with a browser, without anything from elsewhere."""
