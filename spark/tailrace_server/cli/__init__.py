"""The commands of subscriptions: parse arguments, call, print."""
