"""The run loop, written once: read -> translate -> publish -> commit -> release."""
