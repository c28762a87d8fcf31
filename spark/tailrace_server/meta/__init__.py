"""The meta database: subscriptions with their leases and progress, API keys and the audit, in SQL."""
