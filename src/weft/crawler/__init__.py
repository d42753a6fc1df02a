"""The process that crawls: schedules hosts, fetches, parses, extracts and writes WARC files. It has no database."""
