"""Webhooks: events sent to addresses elsewhere, signed, tried again, and written down."""
