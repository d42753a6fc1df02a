"""The pages of weft for people with a browser."""
