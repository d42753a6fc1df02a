"""Items as files: rows go in, bytes come out, and no more than a few rows are held at any moment."""
