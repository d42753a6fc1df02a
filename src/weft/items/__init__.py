"""What runs yield: items stored once each, the things they are seen of, and what changed."""
