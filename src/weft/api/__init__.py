"""What weft answers over HTTP."""
