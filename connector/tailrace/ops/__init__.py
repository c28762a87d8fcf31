"""Health and what the agent says about itself."""
