"""Subscriptions: who gets which table into which sink, kept in a meta database and run by any number of workers."""
