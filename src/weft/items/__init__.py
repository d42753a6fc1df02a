"""What runs yield: items stored once each, the records they are seen of, and what changed."""
