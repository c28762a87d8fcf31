"""Runs subscriptions: claims them, and runs each as a stream query of one Spark application."""
